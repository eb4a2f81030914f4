// Defines a snapshot of the engine.
#ifndef TLM_SERVER_OBSERVE_ENGINE_STATS_H_
#define TLM_SERVER_OBSERVE_ENGINE_STATS_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "model/kv_cache/prefix_cache.h"
#include "model/ops/device.h"

namespace tlm {

// Counted since the start, except for the last two. The engine does not know ZMQ and leaves
// zmq_dropped at 0.
struct KvEventStats {
  int64_t stored_blocks = 0;
  int64_t removed_blocks = 0;
  int64_t lost_readers = 0;   // how often a reader was so slow that it lost events
  int64_t zmq_dropped = 0;    // messages that a subscriber over ZMQ has missed
  int64_t subscriptions = 0;  // open subscriptions
  int64_t history_bytes = 0;
};

// Read by health, load reports, metrics and tests.
struct EngineStats {
  absl::Time taken;              // when the snapshot was taken, on the engine's clock
  int64_t running_requests = 0;  // after branching, a request counts once per output
  int64_t parked_requests = 0;   // running ones that wait for a slow reader
  int64_t waiting_requests = 0;  // not started, or preempted (then counted per output)
  int64_t waiting_tokens = 0;
  // Bytes of requests that are not tokenized yet; the engine does not know them and leaves 0.
  int64_t waiting_text_bytes = 0;
  int64_t kv_blocks_used = 0;
  int64_t kv_blocks_cached = 0;  // held only by the prefix cache: free on demand
  int64_t kv_blocks_total = 0;
  int64_t steps = 0;
  int64_t prefill_tokens = 0;  // computed so far
  int64_t decode_tokens = 0;   // computed so far
  int64_t preemptions = 0;
  RunCounts model_runs;            // how the device ran steps
  int64_t finished_requests = 0;   // ended in any way, with all their outputs
  bool busy = false;               // has work now
  absl::Time last_progress;        // end of the last step or of the last idle wait
  absl::Status fault;              // the last step's; OK if it succeeded
  int64_t consecutive_faults = 0;  // failed steps since the last successful one
  // How fast waiting work started recently while some had to wait; 0: unknown.
  double drained_requests_per_second = 0;
  double drained_prompt_tokens_per_second = 0;
  // Averages over the last seconds; 0: nothing was computed.
  double prefill_tokens_per_second = 0;
  double decode_tokens_per_second = 0;
  absl::Duration estimated_queue_time;  // time for a request that arrives now
  PrefixCacheStats prefix_cache;
  std::optional<KvEventStats> kv_events;  // nullopt: the engine records no events
  bool draining = false;
};

}  // namespace tlm

#endif  // TLM_SERVER_OBSERVE_ENGINE_STATS_H_
