// Where requests wait: bounded, fed by any thread, emptied in bulk by the engine thread.
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

// Thread-safe. A request counts as waiting from Push until Release, not only until it is taken: the
// bounds hold for everything that has not started, wherever it lies.
class RequestQueue : public StreamWaker {
 public:
  // `max_time`: what would wait longer is refused.
  explicit RequestQueue(const QueueLoad& limits, absl::Duration max_time = absl::InfiniteDuration())
      : limits_(limits), max_time_(max_time) {}

  // Moves the request, sets its arrival to `now` and wakes the engine if and only if it returns
  // OK; never blocks. At most `cached_tokens` of its tokens may be in the prefix cache.
  //
  //   UNAVAILABLE, DRAINING              closed
  //   DEADLINE_EXCEEDED, INFEASIBLE      the least that is asked for is clearly not done by then
  //   RESOURCE_EXHAUSTED, QUEUE_FULL     too many wait, or those before it take longer than
  //                                      max_time; or it, or others behind it, would probably be
  //                                      begun in vain for want of time
  //   RESOURCE_EXHAUSTED, QUEUED_TOKENS  an empty queue takes a request of any length
  //
  // All but INFEASIBLE come with a retry time. Callers that are refused for want of room are told
  // to come back one after the other, as places become free, not all for the next one.
  absl::Status Push(Request&& request, absl::Time now, int64_t cached_tokens = 0);
  // What Push would say to a request of one token before all others.
  absl::Status CheckOpen(absl::Time now);
  // Refuses from now on; what is inside stays. Idempotent.
  void Close();

  // The engine's side.
  // All that arrived since the last call, in order. Forgets earlier calls of Wake.
  std::vector<Request> Take();
  // A taken request with this many InputTokens waits no longer; its prompt need not be there.
  void Release(const Request& request, int64_t input_tokens);
  // What waits and retry times are computed from.
  void SetEstimates(const ServiceEstimates& estimates);
  // Returns when something arrived or Wake was called since the last Take, at the latest after
  // `timeout` (at once when it is not positive, or earlier without cause).
  void WaitForWork(absl::Duration timeout);
  // Ends the running or the next WaitForWork.
  void Wake() override;

  QueueLoad waiting() const;
  bool closed() const;
  ServiceEstimates estimates() const;

 private:
  // Whom a waiting request goes before: lower priorities, and later deadlines of its tenant. What
  // is fair between tenants is not known here.
  struct Place {
    int32_t priority;
    std::string tenant;
    absl::Time deadline;
    bool operator<(const Place& other) const;
  };
  static Place PlaceOf(const Request& request);
  // Those at one place.
  struct Waiting {
    QueueLoad load;
    absl::Duration running_time;  // that the slowest will probably take
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
  absl::Time promised_ TLM_GUARDED_BY(mutex_) = absl::InfinitePast();  // in the last refusal
  bool woken_ TLM_GUARDED_BY(mutex_) = false;
  bool closed_ TLM_GUARDED_BY(mutex_) = false;
};

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_REQUEST_QUEUE_H_
