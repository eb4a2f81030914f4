#include "client/cpp/cancel_token.h"

#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/time/clock.h"

namespace tlm::client {

CancelToken::CancelToken(CancelToken* parent) {
  if (parent != nullptr) parent_.emplace(parent, [this] { Cancel(); });
}

// Calls back under the lock, so that the callback's data cannot be destroyed meanwhile.
void CancelToken::Cancel() {
  std::lock_guard<std::mutex> lock(mutex_);
  cancelled_ = true;
  for (const std::function<void()>& on_cancel : on_cancel_) on_cancel();
}

bool CancelToken::cancelled() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return cancelled_;
}

bool CancelToken::WaitFor(absl::Duration timeout) {
  // Longer waits overflow the clock's nanoseconds.
  const absl::Duration bounded = std::clamp(timeout, absl::ZeroDuration(), absl::Hours(24 * 365));
  grpc::CompletionQueue queue;
  grpc::Alarm alarm;
  alarm.Set(&queue, absl::ToChronoTime(absl::Now() + bounded), this);
  {
    const Registration registration(this, [&alarm] { alarm.Cancel(); });
    void* tag;
    bool ok;
    queue.Next(&tag, &ok);
  }
  queue.Shutdown();
  return cancelled();
}

CancelToken::Registration::Registration(CancelToken* token, std::function<void()> on_cancel)
    : token_(token) {
  if (token_ == nullptr) return;
  std::lock_guard<std::mutex> lock(token_->mutex_);
  token_->on_cancel_.push_back(std::move(on_cancel));
  place_ = std::prev(token_->on_cancel_.end());
  if (token_->cancelled_) (*place_)();
}

CancelToken::Registration::Registration(CancelToken* token, grpc::ClientContext* context)
    : Registration(token, [context] { context->TryCancel(); }) {}

CancelToken::Registration::~Registration() {
  if (token_ == nullptr) return;
  std::lock_guard<std::mutex> lock(token_->mutex_);
  token_->on_cancel_.erase(place_);
}

}  // namespace tlm::client
