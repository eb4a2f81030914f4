// Ends a call shortly before its deadline.
#ifndef TLM_SERVER_RPC_CALL_DEADLINE_TIMER_H_
#define TLM_SERVER_RPC_CALL_DEADLINE_TIMER_H_

#include <grpc/support/time.h>
#include <grpcpp/alarm.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/time/time.h"

namespace tlm {

// Returns a call's deadline on the clock of `now`; InfiniteFuture without one. gRPC's deadline is
// on its monotonic clock, so a change of the system time affects neither.
inline absl::Time DeadlineFrom(gpr_timespec deadline, absl::Time now) {
  deadline = gpr_convert_clock_type(deadline, GPR_CLOCK_MONOTONIC);
  if (gpr_time_cmp(deadline, gpr_inf_future(GPR_CLOCK_MONOTONIC)) == 0) {
    return absl::InfiniteFuture();
  }
  const gpr_timespec left = gpr_time_sub(deadline, gpr_now(GPR_CLOCK_MONOTONIC));
  return now + absl::Seconds(left.tv_sec) + absl::Nanoseconds(left.tv_nsec);
}

// Returns when to end a call that arrives now, so that its status reaches the client before
// `deadline`: earlier by a twentieth of the remaining time, at most 50 ms. At the deadline itself
// gRPC cancels the call, and the client's library reports its own status, without a reason.
inline absl::Time AnswerBy(absl::Time deadline, absl::Time now) {
  if (deadline == absl::InfiniteFuture()) return deadline;
  return deadline - std::clamp((deadline - now) / 20, absl::ZeroDuration(), absl::Milliseconds(50));
}

// A call's timer; each call has one as a member. Thread-compatible.
class DeadlineTimer {
 public:
  // Calls call->OnDeadline() on one of gRPC's threads after `left`, if both `call` and this object
  // are still alive. At most once.
  template <typename Call>
  void Start(absl::Duration left, std::weak_ptr<Call> call) {
    if (left == absl::InfiniteDuration()) return;
    alarm_.emplace();
    const gpr_timespec span = gpr_time_from_nanos(absl::ToInt64Nanoseconds(left), GPR_TIMESPAN);
    alarm_->Set(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), span),
                [call = std::move(call)](bool expired) {
                  if (!expired) return;
                  if (const std::shared_ptr<Call> alive = call.lock()) alive->OnDeadline();
                });
  }

 private:
  std::optional<grpc::Alarm> alarm_;
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CALL_DEADLINE_TIMER_H_
