// Holds requests until they start: bounded, filled by any thread, emptied in bulk by the engine
// thread.
#ifndef TLM_SERVER_BATCHING_REQUEST_QUEUE_H_
#define TLM_SERVER_BATCHING_REQUEST_QUEUE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "model/base/mutex.h"
#include "server/batching/request.h"
#include "server/batching/service_rates.h"
#include "server/batching/token_stream.h"

namespace tlm {

// Thread-safe. A request counts as waiting from Push until Release, not only until Take: the bounds
// cover every request that has not started, in the queue or in the engine.
class RequestQueue : public StreamWaker {
 public:
  // `max_time`: a request that would wait longer is refused.
  explicit RequestQueue(const QueueLoad& limits, absl::Duration max_time = absl::InfiniteDuration())
      : limits_(limits), max_time_(max_time) {}

  // Moves the request, sets its arrival to `now` and wakes the engine, all only when it returns OK.
  // Never blocks. `cached_tokens`: the most of its tokens that the prefix cache may hold.
  //
  //   UNAVAILABLE, DRAINING              closed
  //   DEADLINE_EXCEEDED, INFEASIBLE      the least requested work clearly takes past the deadline
  //   RESOURCE_EXHAUSTED, QUEUE_FULL     too many requests wait, or those ahead take longer than
  //                                      max_time; or this request, or a waiting one that it goes
  //                                      before, would probably start and then miss its deadline
  //   RESOURCE_EXHAUSTED, QUEUED_TOKENS  too many tokens wait; an empty queue takes any length
  //
  // All but INFEASIBLE carry a retry time. The retry times of refused callers are spaced: each
  // waits for a place of its own instead of all for the next one.
  absl::Status Push(Request&& request, absl::Time now, int64_t cached_tokens = 0);
  // Returns the status that Push would return for a request of one token that goes before all
  // others.
  absl::Status CheckOpen(absl::Time now);
  // Refuses requests from now on; queued ones stay. Idempotent.
  void Close();

  // The engine's side.
  // Returns all arrivals since the last call, in order. Forgets earlier calls of Wake.
  std::vector<Request> Take();
  // A taken request with this many InputTokens no longer waits; its prompt may have been moved
  // away.
  void Release(const Request& request, int64_t input_tokens);
  // Sets the estimates for waiting and retry times.
  void SetEstimates(const ServiceEstimates& estimates);
  // Returns when something arrived or Wake was called since the last Take, or after `timeout` (at
  // once when it is not positive). May return early without cause.
  void WaitForWork(absl::Duration timeout);
  // Ends the running WaitForWork, or the next one.
  void Wake() override;

  QueueLoad waiting() const;
  bool closed() const;
  ServiceEstimates estimates() const;

 private:
  // A request's place in the order: before lower priorities, and before later deadlines of its
  // tenant. Fairness between tenants is not modelled here.
  struct Place {
    int32_t priority;
    std::string tenant;
    absl::Time deadline;
    bool operator<(const Place& other) const;
  };
  static Place PlaceOf(const Request& request);
  // The requests at one place.
  struct Waiting {
    QueueLoad load;
    absl::Duration running_time;  // longest likely running time of one request
  };

  absl::Status CheckClosed() const TLM_REQUIRES(mutex_);
  absl::Status CheckRoom(int64_t input_tokens, absl::Time now) TLM_REQUIRES(mutex_);
  absl::Status CheckFeasible(const Request& request, const QueueLoad& ahead, int64_t cached_tokens,
                             absl::Time now) const TLM_REQUIRES(mutex_);
  absl::Status CheckWait(const Request& request, const QueueLoad& ahead, absl::Time now)
      TLM_REQUIRES(mutex_);
  absl::Duration RunningTime(const Request& request) const TLM_REQUIRES(mutex_);
  QueueLoad Ahead(const Place& place) const TLM_REQUIRES(mutex_);
  bool MakesOthersLate(const Place& place, QueueLoad ahead, int64_t input_tokens,
                       absl::Time now) const TLM_REQUIRES(mutex_);
  absl::Duration RetryAfter(absl::Duration room_in, absl::Duration share, absl::Time now)
      TLM_REQUIRES(mutex_);

  const QueueLoad limits_;
  const absl::Duration max_time_;
  mutable Mutex mutex_;
  CondVar work_;
  std::vector<Request> arrivals_ TLM_GUARDED_BY(mutex_);
  QueueLoad waiting_ TLM_GUARDED_BY(mutex_);
  std::map<Place, Waiting> places_ TLM_GUARDED_BY(mutex_);  // sum: waiting_
  ServiceEstimates estimates_ TLM_GUARDED_BY(mutex_);
  absl::Time promised_ TLM_GUARDED_BY(mutex_) = absl::InfinitePast();  // by the last refusal
  bool woken_ TLM_GUARDED_BY(mutex_) = false;
  bool closed_ TLM_GUARDED_BY(mutex_) = false;
};

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_REQUEST_QUEUE_H_
