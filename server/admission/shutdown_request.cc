#include "server/admission/shutdown_request.h"

#include <algorithm>
#include <chrono>

namespace tlm {
namespace {

// Condition variables take nanoseconds of the steady clock; this limit keeps long timeouts within
// them.
constexpr absl::Duration kLongestShutdownWait = absl::Hours(24 * 365);

}  // namespace

bool ShutdownRequest::Ask(const ShutdownTerms& terms) {
  MutexLock lock(&mutex_);
  if (asked_) return false;
  asked_ = true;
  terms_ = terms;
  changed_.NotifyAll();
  return true;
}

bool ShutdownRequest::asked() const {
  MutexLock lock(&mutex_);
  return asked_;
}

ShutdownTerms ShutdownRequest::Wait() {
  MutexLock lock(&mutex_);
  while (!asked_) changed_.Wait(&mutex_);
  return terms_;
}

void ShutdownRequest::SkipDrain() {
  MutexLock lock(&mutex_);
  skipped_ = true;
  changed_.NotifyAll();
}

bool ShutdownRequest::WaitForSkip(absl::Duration timeout) {
  const auto end =
      std::chrono::steady_clock::now() +
      absl::ToChronoNanoseconds(std::clamp(timeout, absl::ZeroDuration(), kLongestShutdownWait));
  MutexLock lock(&mutex_);
  while (!skipped_) {
    const auto left = end - std::chrono::steady_clock::now();
    if (left <= left.zero()) break;
    changed_.WaitFor(&mutex_, left);
  }
  return skipped_;
}

}  // namespace tlm
