// Where requests wait: bounded, fed by any thread, emptied in bulk by the engine thread.
#ifndef TLM_SERVER_BATCHING_REQUEST_QUEUE_H_
#define TLM_SERVER_BATCHING_REQUEST_QUEUE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "model/base/mutex.h"
#include "server/batching/request.h"
#include "server/batching/token_stream.h"

namespace tlm {

// What is waiting, or may wait.
struct QueueLoad {
  int64_t requests = 0;
  int64_t prompt_tokens = 0;  // with the continuations to score
};

// How fast waiting work has been started lately; 0 = not known.
struct DrainRate {
  double requests_per_second = 0;
  double prompt_tokens_per_second = 0;
};

// Thread-safe. A request counts as waiting from Push until Release, not only until it is taken: the
// bounds hold for everything that has not started, wherever it lies.
class RequestQueue : public StreamWaker {
 public:
  explicit RequestQueue(const QueueLoad& limits) : limits_(limits) {}

  // Moves the request, sets its arrival to `now` and wakes the engine if and only if it returns
  // OK; never blocks. RESOURCE_EXHAUSTED with reason QUEUE_FULL or QUEUED_TOKENS and a retry time;
  // UNAVAILABLE with reason DRAINING once closed. An empty queue takes a request of any length.
  absl::Status Push(Request&& request, absl::Time now);
  // Refuses from now on; what is inside stays. Idempotent.
  void Close();

  // The engine's side.
  // All that arrived since the last call, in order. Forgets earlier calls of Wake.
  std::vector<Request> Take();
  // A taken request with this many InputTokens waits no longer.
  void Release(int64_t prompt_tokens);
  // What retry times are computed from.
  void SetDrainRate(const DrainRate& rate);
  // Returns when something arrived or Wake was called since the last Take, at the latest after
  // `timeout` (at once when it is not positive, or earlier without cause).
  void WaitForWork(absl::Duration timeout);
  // Ends the running or the next WaitForWork.
  void Wake() override;

  QueueLoad waiting() const;

 private:
  absl::Status CheckRoom(int64_t prompt_tokens) const TLM_REQUIRES(mutex_);

  const QueueLoad limits_;
  mutable Mutex mutex_;
  CondVar work_;
  std::vector<Request> arrivals_ TLM_GUARDED_BY(mutex_);
  QueueLoad waiting_ TLM_GUARDED_BY(mutex_);
  DrainRate rate_ TLM_GUARDED_BY(mutex_);
  bool woken_ TLM_GUARDED_BY(mutex_) = false;
  bool closed_ TLM_GUARDED_BY(mutex_) = false;
};

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_REQUEST_QUEUE_H_
