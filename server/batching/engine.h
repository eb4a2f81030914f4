// The engine: one thread that owns the model and turns queued requests into tokens, step by step.
#ifndef TLM_SERVER_BATCHING_ENGINE_H_
#define TLM_SERVER_BATCHING_ENGINE_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "model/base/clock.h"
#include "model/transformer_lm/language_model.h"
#include "server/batching/engine_options.h"
#include "server/batching/kv_event_log.h"
#include "server/batching/request.h"
#include "server/observe/engine_metrics.h"
#include "server/observe/engine_stats.h"
#include "server/speculation/draft.h"

namespace tlm {

// Thread-safe.
class Engine {
 public:
  // Starts the engine thread and the delivery thread. `model` and `clock` outlive the engine;
  // options must fit model.limits() (INVALID_ARGUMENT names what does not). `metrics`, null for
  // none, is told of steps and tokens on the engine thread and outlives the engine, as
  // `draft_source` does, null for none, which that thread alone calls.
  static absl::StatusOr<std::unique_ptr<Engine>> Start(LanguageModel& model,
                                                       const EngineOptions& options, Clock& clock,
                                                       EngineMetrics* metrics = nullptr,
                                                       DraftSource* draft_source = nullptr);
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
  // Null unless options.kv_events.enabled, with a prefix cache. Lives as long as the engine; Stop
  // closes it. A request's events are there before its results.
  virtual KvEventLog* kv_events() { return nullptr; }
};

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_ENGINE_H_
