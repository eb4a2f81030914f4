// What the engine is given and what it tells of itself, as plain data.
#ifndef TLM_SERVER_BATCHING_ENGINE_OPTIONS_H_
#define TLM_SERVER_BATCHING_ENGINE_OPTIONS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "model/kv_cache/prefix_cache.h"

namespace tlm {

// How much is computed and held at a time. The flags set it, the engine and its scheduler follow
// it, and ModelInfo reports it.
struct EngineOptions {
  int64_t max_batch_tokens = 512;       // of one step, decodes and prefill chunks together
  int64_t max_prefill_tokens = 512;     // of one step, summed over all prefilling sequences
  int64_t max_running_requests = 64;    // sequences that hold KV blocks: one for each output
  int64_t max_queued_requests = 1024;   // waiting ones
  int64_t max_queued_tokens = 1 << 20;  // of the waiting ones: prompts, continuations to score
  // Refuse what would wait longer for its first step, by the measured rates. Infinite: never.
  absl::Duration max_queue_time = absl::InfiniteDuration();
  bool prefix_cache = true;
  // With sequences decoding, prefill gets so few tokens of a step that it takes at most about this
  // many times as long as one of decodes alone, by the measured rates, so that a long prompt does
  // not stall running streams; >= 1, 0 = no such bound.
  double max_decode_stretch = 2.0;
  // Prompts of at most so many tokens that are not in the cache are left out of that: held back,
  // they would queue up for their first token. 0 = none.
  int64_t short_prompt_tokens = 256;
};

// A snapshot for health, load reports and tests.
struct EngineStats {
  int64_t running_requests = 0;  // a request that has branched counts once for each output
  int64_t parked_requests = 0;   // of the running ones: wait for a slow reader
  int64_t waiting_requests = 0;  // not started, or preempted: then counted as the running ones
  int64_t waiting_tokens = 0;
  int64_t kv_blocks_used = 0;
  int64_t kv_blocks_cached = 0;  // held by the prefix cache alone: free on demand
  int64_t kv_blocks_total = 0;
  int64_t steps = 0;
  int64_t prefill_tokens = 0;  // computed so far
  int64_t decode_tokens = 0;   // computed so far
  int64_t preemptions = 0;
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
  bool draining = false;
};

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_ENGINE_OPTIONS_H_
