// A snapshot of the engine.
#ifndef TLM_SERVER_OBSERVE_ENGINE_STATS_H_
#define TLM_SERVER_OBSERVE_ENGINE_STATS_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "model/kv_cache/prefix_cache.h"
#include "model/ops/device.h"

namespace tlm {

// Counted since the start, but for the last two. The engine does not know ZMQ and leaves 0.
struct KvEventStats {
  int64_t stored_blocks = 0;
  int64_t removed_blocks = 0;
  int64_t lost_readers = 0;   // how often one was so slow that it lost events
  int64_t zmq_dropped = 0;    // messages that a subscriber over ZMQ has missed
  int64_t subscriptions = 0;  // open
  int64_t history_bytes = 0;
};

// Health, load reports, metrics and tests read it.
struct EngineStats {
  absl::Time taken;              // when the snapshot was taken, by the engine's clock
  int64_t running_requests = 0;  // a request that has branched counts once for each output
  int64_t parked_requests = 0;   // of the running ones: wait for a slow reader
  int64_t waiting_requests = 0;  // not started, or preempted: then counted as the running ones
  int64_t waiting_tokens = 0;
  // Of requests that are not tokenized yet; the engine does not know them and leaves 0.
  int64_t waiting_text_bytes = 0;
  int64_t kv_blocks_used = 0;
  int64_t kv_blocks_cached = 0;  // held by the prefix cache alone: free on demand
  int64_t kv_blocks_total = 0;
  int64_t steps = 0;
  int64_t prefill_tokens = 0;  // computed so far
  int64_t decode_tokens = 0;   // computed so far
  int64_t preemptions = 0;
  RunCounts model_runs;            // of the model's device
  int64_t finished_requests = 0;   // ended in any way, with all their outputs
  bool busy = false;               // has work now
  absl::Time last_progress;        // end of the last step or of the last idle wait
  absl::Status fault;              // of the last step; OK after one that did not fail
  int64_t consecutive_faults = 0;  // steps that failed since the last one that did not
  // How fast waiting work was started while some had to wait, lately; 0 = not known.
  double drained_requests_per_second = 0;
  double drained_prompt_tokens_per_second = 0;
  // Computed over the last seconds; 0 = nothing was.
  double prefill_tokens_per_second = 0;
  double decode_tokens_per_second = 0;
  absl::Duration estimated_queue_time;  // of a request that arrives now
  PrefixCacheStats prefix_cache;
  std::optional<KvEventStats> kv_events;  // none: the engine tells of none
  bool draining = false;
};

}  // namespace tlm

#endif  // TLM_SERVER_OBSERVE_ENGINE_STATS_H_
