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
    if (Room() == 0) waker = waker_;
    taken = std::exchange(pending_, Pending());
    held_.store(0, std::memory_order_release);
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

void TokenStream::Hold() {
  TLM_CHECK(!ended_ && Room() > 0);
  held_.fetch_add(1, std::memory_order_release);
}

void TokenStream::PushStart(const StreamStart& start) {
  MutexLock lock(&mutex_);
  TLM_CHECK(!ended_);
  pending_.start = start;
}

void TokenStream::PushToken(SampledToken token) {
  MutexLock lock(&mutex_);
  Hold();
  pending_.tokens.push_back(std::move(token));
}

void TokenStream::PushRow(LogitsRow row) {
  MutexLock lock(&mutex_);
  Hold();
  pending_.rows.push_back(std::move(row));
}

void TokenStream::PushScored(ScoredEntry entry) {
  MutexLock lock(&mutex_);
  Hold();
  pending_.scored.push_back(std::move(entry));
}

void TokenStream::PushEnd(StreamEnd end) {
  MutexLock lock(&mutex_);
  TLM_CHECK(!ended_);
  ended_ = true;
  pending_.end = std::move(end);
}

}  // namespace tlm
