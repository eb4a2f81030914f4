// The engine: one thread that owns the model and turns queued requests into tokens, step by step.
#ifndef TLM_SERVER_BATCHING_ENGINE_H_
#define TLM_SERVER_BATCHING_ENGINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "model/base/clock.h"
#include "model/kv_cache/prefix_cache.h"
#include "model/transformer_lm/language_model.h"
#include "server/batching/request.h"
#include "server/observe/engine_metrics.h"

namespace tlm {

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
  // What steps and tokens are told to, on the engine thread; outlives the engine. Null: nobody.
  EngineMetrics* metrics = nullptr;
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

// Thread-safe.
class Engine {
 public:
  // Starts the engine thread and the delivery thread. `model` and `clock` outlive the engine;
  // options must fit model.limits() (INVALID_ARGUMENT names what does not).
  static absl::StatusOr<std::unique_ptr<Engine>> Start(LanguageModel& model,
                                                       const EngineOptions& options, Clock& clock);
  // Stop()s.
  virtual ~Engine() = default;

  // Queues a request; never blocks. On OK the request has been moved from and each of its streams
  // will receive exactly one PushEnd; otherwise `request` is untouched. RESOURCE_EXHAUSTED with
  // reason QUEUE_FULL (too many, for longer than max_queue_time, or so long that its deadline, or
  // that of one behind it, would probably be missed) or QUEUED_TOKENS and a retry time from the
  // measured drain rate; UNAVAILABLE with reason DRAINING after Drain or Stop;
  // DEADLINE_EXCEEDED, reason EXPIRED_IN_QUEUE, when the deadline has already passed, INFEASIBLE,
  // when by the measured rates it will before the least that is asked for is done;
  // INVALID_ARGUMENT for an empty prompt, one longer than the model's max_context (the longest
  // continuation or the resumed output included), no token to generate, more outputs than
  // max_running_requests, positions that do not ascend within the prompt, continuations that are
  // missing or empty, a resumed output that goes on behind its end.
  virtual absl::Status Submit(Request&& request) = 0;
  // What Submit would say to the smallest request now: for refusing before work is put into
  // reading a request. Cheap.
  virtual absl::Status CheckOpen() const = 0;

  // Frees every cached block that no sequence uses and forgets the others; `done` is called with
  // their number once that has happened, on one of the engine's threads, where it must not block
  // (with 0, from this one, when the engine has stopped).
  virtual void FlushPrefixCache(std::function<void(int64_t)> done) = 0;

  // Refuses new requests from now on; what is queued or running goes on. Idempotent.
  virtual void Drain() = 0;
  // Waits until nothing is queued or running, at most `timeout`; true when that was reached.
  virtual bool WaitUntilIdle(absl::Duration timeout) = 0;
  // Ends everything left with UNAVAILABLE and joins the threads. Idempotent.
  virtual void Stop() = 0;

  virtual EngineStats Stats() const = 0;
};

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_ENGINE_H_
