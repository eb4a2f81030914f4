#include "server/admission/shutdown_request.h"

namespace tlm {

bool ShutdownRequest::Ask(std::optional<absl::Duration> drain_limit) {
  MutexLock lock(&mutex_);
  if (asked_) return false;
  asked_ = true;
  drain_limit_ = drain_limit;
  changed_.NotifyAll();
  return true;
}

bool ShutdownRequest::asked() const {
  MutexLock lock(&mutex_);
  return asked_;
}

std::optional<absl::Duration> ShutdownRequest::Wait() {
  MutexLock lock(&mutex_);
  while (!asked_) changed_.Wait(&mutex_);
  return drain_limit_;
}

}  // namespace tlm
