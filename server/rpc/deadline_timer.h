// Tells a call that its time is nearly up.
#ifndef TLM_SERVER_RPC_DEADLINE_TIMER_H_
#define TLM_SERVER_RPC_DEADLINE_TIMER_H_

#include <grpcpp/alarm.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/time/time.h"

namespace tlm {

// When a call that arrives now is to be ended so that its status is with the client by `deadline`:
// a twentieth of the time before it, at most 50 ms. At the deadline itself gRPC cancels the call,
// and the client's library ends it with a status of its own that knows no reason.
inline absl::Time AnswerBy(absl::Time deadline, absl::Time now) {
  if (deadline == absl::InfiniteFuture()) return deadline;
  return deadline - std::clamp((deadline - now) / 20, absl::ZeroDuration(), absl::Milliseconds(50));
}

// One for each call, part of it. Thread-compatible.
class DeadlineTimer {
 public:
  // Calls call->OnDeadline() on one of gRPC's threads once `when` has come, if `call` and this are
  // alive then. At most once.
  template <typename Call>
  void Start(absl::Time when, std::weak_ptr<Call> call) {
    if (when == absl::InfiniteFuture()) return;
    alarm_.emplace();
    alarm_->Set(absl::ToChronoTime(when), [call = std::move(call)](bool expired) {
      if (!expired) return;
      if (const std::shared_ptr<Call> alive = call.lock()) alive->OnDeadline();
    });
  }

 private:
  std::optional<grpc::Alarm> alarm_;
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_DEADLINE_TIMER_H_
