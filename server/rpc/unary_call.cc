#include "server/rpc/unary_call.h"

namespace tlm {

void UnaryCall::OnStreamReady() {
  std::optional<absl::Status> end;
  {
    MutexLock lock(&mutex_);
    if (!finished_) end = Collect();
  }
  if (end.has_value()) FinishOnce(*end);
}

void UnaryCall::WatchDeadline() {
  absl::Duration left;
  {
    MutexLock lock(&mutex_);
    left = record_.deadline - record_.clock->Now();
  }
  deadline_timer_.Start(left, weak_from_this());
}

void UnaryCall::FinishAs(absl::Status (*status_of)(const CallRecord&)) {
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    status = status_of(record_);
  }
  FinishOnce(status);
}

bool UnaryCall::FinishOnce(const absl::Status& status) {
  {
    MutexLock lock(&mutex_);
    if (std::exchange(finished_, true)) return false;
    Settle(ticket_, record_);
    // Whoever has heard of the end may use the id again at once.
    registration_ = CallRegistry::Registration();
    ticket_.FreeRequestId();
    record_.status = status;
    Abandon();
    if (!status.ok()) AddUsageTrailers(record_, *context_);
  }
  Finish(ToGrpcStatus(status));
  return true;
}

void UnaryCall::OnDone() {
  {
    MutexLock lock(&mutex_);
    ticket_ = Admission::Ticket();
    EndCall(record_);
  }
  // The end of this object, unless a wake-up still holds it.
  const std::shared_ptr<UnaryCall> last = std::move(self_);
}

}  // namespace tlm
