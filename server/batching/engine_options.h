// Defines the engine's limits as plain data.
#ifndef TLM_SERVER_BATCHING_ENGINE_OPTIONS_H_
#define TLM_SERVER_BATCHING_ENGINE_OPTIONS_H_

#include <cstdint>

#include "absl/time/time.h"

namespace tlm {

// The events that the engine records about its prefix cache (see KvEventLog).
struct KvEventOptions {
  bool enabled = false;
  // Limits of the history, for all tenants together; older steps are forgotten.
  int64_t max_bytes = 32 << 20;
  int64_t max_batches = 10'000;
};

// When the next tokens of outputs are guessed. Guessing never changes a token.
enum class Speculation {
  kOff,
  kAuto,    // when it is expected to pay
  kAlways,  // whenever there is a guess and room for it: for tests
};

// Limits on the work and the sequences at a time. The flags set them, the engine and its scheduler
// follow them, and ModelInfo reports them.
struct EngineOptions {
  int64_t max_batch_tokens = 512;       // per step, decodes and prefill chunks together
  int64_t max_prefill_tokens = 512;     // per step, summed over all prefilling sequences
  int64_t max_running_requests = 64;    // sequences that hold KV blocks: one per output
  int64_t max_queued_requests = 1024;   // waiting requests
  int64_t max_queued_tokens = 1 << 20;  // waiting prompts and continuations to score
  // Refuse requests that would wait longer for their first step, by the measured rates. Infinite:
  // never refuse.
  absl::Duration max_queue_time = absl::InfiniteDuration();
  bool prefix_cache = true;
  // While sequences decode, the prefill tokens of a step are limited so that it takes at most about
  // this many times as long as a step of decodes alone, by the measured rates. So a long prompt
  // does not stall running streams. >= 1; 0: no limit.
  double max_decode_stretch = 2.0;
  // Prompts with at most this many uncached tokens are exempt from max_decode_stretch: if held
  // back, they would queue up for their first token. 0: no prompt is exempt.
  int64_t short_prompt_tokens = 256;
  // If the mask of a constrained output is not ready this long after its logits, the output sits
  // out until it is.
  absl::Duration max_mask_wait = absl::Milliseconds(5);
  // Before a launch, a step waits for tokens of constrained outputs that need no sampling: at most
  // this fraction of the last step's time, and 1 ms.
  double max_run_wait = 1.0 / 64;
  Speculation speculation = Speculation::kAuto;
  int64_t max_draft_tokens = 16;  // draft tokens of one output in a step
  KvEventOptions kv_events = {};
};

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_ENGINE_OPTIONS_H_
