// A snapshot of the engine, taken at every scrape.
#ifndef TLM_SERVER_OBSERVE_ENGINE_FIGURES_H_
#define TLM_SERVER_OBSERVE_ENGINE_FIGURES_H_

#include <cstdint>

namespace tlm {

struct EngineFigures {
  int64_t running_sequences = 0;
  int64_t parked_sequences = 0;  // the part of the running ones paused by backpressure
  int64_t waiting_requests = 0;
  int64_t waiting_tokens = 0;
  int64_t waiting_text_bytes = 0;  // of requests that are not tokenized yet
  int64_t kv_blocks_used = 0;
  int64_t kv_blocks_cached = 0;
  int64_t kv_blocks_total = 0;
  int64_t steps = 0;  // this and the following: since the start
  int64_t prefill_tokens = 0;
  int64_t decode_tokens = 0;
  int64_t preemptions = 0;
  int64_t cache_queried_tokens = 0;
  int64_t cache_hit_tokens = 0;
  int64_t cache_evicted_blocks = 0;
  int64_t cache_published_blocks = 0;
  int64_t failed_steps = 0;  // since the last success
  double progress_age_seconds = 0;
  double estimated_queue_seconds = 0;
};

}  // namespace tlm

#endif  // TLM_SERVER_OBSERVE_ENGINE_FIGURES_H_
