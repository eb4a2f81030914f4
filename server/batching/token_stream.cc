#include "server/batching/token_stream.h"

#include <utility>

#include "model/base/errors.h"

namespace tlm {
namespace {

void WakeIfAlive(const std::weak_ptr<StreamWaker>& waker) {
  if (const std::shared_ptr<StreamWaker> alive = waker.lock()) alive->Wake();
}

}  // namespace

TokenStream::TokenStream(std::weak_ptr<StreamListener> listener, int64_t capacity)
    : listener_(std::move(listener)), capacity_(capacity) {}

TokenStream::Pending TokenStream::Take() {
  Pending taken;
  std::weak_ptr<StreamWaker> waker;
  {
    MutexLock lock(&mutex_);
    if (RoomLocked() == 0) waker = waker_;
    taken = std::exchange(pending_, Pending());
  }
  WakeIfAlive(waker);
  return taken;
}

void TokenStream::Detach() {
  if (detached_.exchange(true, std::memory_order_acq_rel)) return;
  std::weak_ptr<StreamWaker> waker;
  {
    MutexLock lock(&mutex_);
    waker = waker_;
  }
  WakeIfAlive(waker);
}

void TokenStream::SetWaker(std::weak_ptr<StreamWaker> waker) {
  MutexLock lock(&mutex_);
  waker_ = std::move(waker);
}

int64_t TokenStream::Room() const {
  MutexLock lock(&mutex_);
  return RoomLocked();
}

int64_t TokenStream::RoomLocked() const {
  const size_t held = pending_.tokens.size() + pending_.rows.size() + pending_.scored.size();
  return capacity_ - static_cast<int64_t>(held);
}

void TokenStream::PushStart(const StreamStart& start) {
  MutexLock lock(&mutex_);
  TLM_CHECK(!ended_);
  pending_.start = start;
}

void TokenStream::PushToken(SampledToken token) {
  MutexLock lock(&mutex_);
  TLM_CHECK(!ended_ && RoomLocked() > 0);
  pending_.tokens.push_back(std::move(token));
}

void TokenStream::PushRow(LogitsRow row) {
  MutexLock lock(&mutex_);
  TLM_CHECK(!ended_ && RoomLocked() > 0);
  pending_.rows.push_back(std::move(row));
}

void TokenStream::PushScored(ScoredEntry entry) {
  MutexLock lock(&mutex_);
  TLM_CHECK(!ended_ && RoomLocked() > 0);
  pending_.scored.push_back(std::move(entry));
}

void TokenStream::PushEnd(StreamEnd end) {
  MutexLock lock(&mutex_);
  TLM_CHECK(!ended_);
  ended_ = true;
  pending_.end = std::move(end);
}

}  // namespace tlm
