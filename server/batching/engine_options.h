// The limits of the engine, as plain data.
#ifndef TLM_SERVER_BATCHING_ENGINE_OPTIONS_H_
#define TLM_SERVER_BATCHING_ENGINE_OPTIONS_H_

#include <cstdint>

#include "absl/time/time.h"

namespace tlm {

// What the engine tells of its prefix cache (see KvEventLog).
struct KvEventOptions {
  bool enabled = false;
  // Of the history, all tenants together; older steps are forgotten.
  int64_t max_bytes = 32 << 20;
  int64_t max_batches = 10'000;
};

// When the next tokens of outputs are guessed; that never changes a token.
enum class Speculation {
  kOff,
  kAuto,    // where it is expected to pay
  kAlways,  // wherever there is a guess, and room for it: for tests
};

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
  // A constrained output whose next tokens are not known by so long after its logits sits out until
  // they are.
  absl::Duration max_mask_wait = absl::Milliseconds(5);
  // Before it is launched, a step waits at most this part of the last one's time, and 1 ms, for
  // tokens of constrained outputs that need no draw.
  double max_run_wait = 1.0 / 64;
  Speculation speculation = Speculation::kAuto;
  int64_t max_draft_tokens = 16;  // of one output in a step
  KvEventOptions kv_events = {};
};

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_ENGINE_OPTIONS_H_
