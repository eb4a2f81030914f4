// Runs the engine: one thread that owns the model and turns queued requests into tokens, step by
// step.
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
  // `options` must fit model.limits() (INVALID_ARGUMENT names the option that does not). `metrics`
  // and `draft_source` may be null and outlive the engine. The engine thread alone calls
  // `draft_source`, and reports steps and tokens to `metrics`.
  static absl::StatusOr<std::unique_ptr<Engine>> Start(LanguageModel& model,
                                                       const EngineOptions& options, Clock& clock,
                                                       EngineMetrics* metrics = nullptr,
                                                       DraftSource* draft_source = nullptr);
  // Stop()s.
  virtual ~Engine() = default;

  // Queues a request; never blocks. On OK the request has been moved from and each of its streams
  // will receive exactly one PushEnd; otherwise `request` is untouched. Errors:
  //
  //   RESOURCE_EXHAUSTED  QUEUE_FULL: too many requests, a wait above max_queue_time, or a wait
  //                       that would probably make this request, or a waiting one that it goes
  //                       before, miss its deadline. QUEUED_TOKENS. Both carry a retry time from
  //                       the measured drain rate.
  //   UNAVAILABLE         DRAINING: after Drain or Stop.
  //   DEADLINE_EXCEEDED   EXPIRED_IN_QUEUE: the deadline has passed. INFEASIBLE: by the measured
  //                       rates it will pass before the least requested work is done.
  //   INVALID_ARGUMENT    An empty prompt; a prompt longer than the model's max_context (with the
  //                       longest continuation or the resumed output); no token to generate; more
  //                       outputs than max_running_requests; positions that do not ascend within
  //                       the prompt; missing or empty continuations; a resumed output that
  //                       continues after its end.
  virtual absl::Status Submit(Request&& request) = 0;
  // Returns the status that Submit would return for the smallest request now; lets callers refuse
  // before they spend work on reading a request. Cheap.
  virtual absl::Status CheckOpen() const = 0;

  // Frees every cached block that no sequence uses and forgets the others. Then calls `done` with
  // the number of freed blocks on one of the engine's threads, where it must not block (if the
  // engine has stopped: with 0, on the calling thread).
  virtual void FlushPrefixCache(std::function<void(int64_t)> done) = 0;

  // Refuses new requests from now on; queued and running ones continue. Idempotent.
  virtual void Drain() = 0;
  // Waits until nothing is queued or running, at most `timeout`; returns whether that was reached.
  virtual bool WaitUntilIdle(absl::Duration timeout) = 0;
  // Ends all remaining requests with UNAVAILABLE and joins the threads. Idempotent.
  virtual void Stop() = 0;

  virtual EngineStats Stats() const = 0;
  // Returns null unless options.kv_events.enabled and the prefix cache is on. The log lives as long
  // as the engine; Stop closes it. The events of a request are in the log before its results are
  // pushed.
  virtual KvEventLog* kv_events() { return nullptr; }
};

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_ENGINE_H_
