#include "client/cpp/cancel_token.h"

#include <algorithm>
#include <chrono>

namespace tlm::client {

// TryCancel runs under the lock so that no context can be destroyed meanwhile; it only starts the
// cancellation and runs no code of ours.
void CancelToken::Cancel() {
  std::lock_guard<std::mutex> lock(mutex_);
  cancelled_ = true;
  for (grpc::ClientContext* context : contexts_) context->TryCancel();
  changed_.notify_all();
}

bool CancelToken::cancelled() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return cancelled_;
}

bool CancelToken::WaitFor(absl::Duration timeout) const {
  std::unique_lock<std::mutex> lock(mutex_);
  // A longer wait would overflow the clock's nanoseconds.
  const absl::Duration bounded = std::min(timeout, absl::Hours(24 * 365));
  changed_.wait_for(lock, absl::ToChronoNanoseconds(bounded), [this] { return cancelled_; });
  return cancelled_;
}

CancelToken::Registration::Registration(CancelToken* token, grpc::ClientContext* context)
    : token_(token), context_(context) {
  if (token_ == nullptr) return;
  std::lock_guard<std::mutex> lock(token_->mutex_);
  token_->contexts_.insert(context_);
  if (token_->cancelled_) context_->TryCancel();
}

CancelToken::Registration::~Registration() {
  if (token_ == nullptr) return;
  std::lock_guard<std::mutex> lock(token_->mutex_);
  token_->contexts_.erase(context_);
}

}  // namespace tlm::client
