#include "server/batching/request_queue.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "model/base/error_details.h"
#include "model/base/errors.h"

namespace tlm {
namespace {

// The time in which what waits now will have been started; a guess while no rate is known.
absl::Duration RetryAfter(int64_t waiting, double per_second) {
  if (per_second <= 0) return absl::Seconds(1);
  return std::clamp(absl::Seconds(static_cast<double>(waiting) / per_second),
                    absl::Milliseconds(50), absl::Minutes(1));
}

}  // namespace

absl::Status RequestQueue::Push(Request&& request, absl::Time now) {
  MutexLock lock(&mutex_);
  if (closed_) {
    return WithReason(Unavailable("the server is shutting down and takes no new requests"),
                      "DRAINING");
  }
  const int64_t prompt_tokens = InputTokens(request);
  TLM_RETURN_IF_ERROR(CheckRoom(prompt_tokens));
  ++waiting_.requests;
  waiting_.prompt_tokens += prompt_tokens;
  arrivals_.push_back(std::move(request));
  arrivals_.back().arrival = now;
  work_.NotifyOne();
  return absl::OkStatus();
}

absl::Status RequestQueue::CheckRoom(int64_t prompt_tokens) const {
  if (waiting_.requests >= limits_.requests) {
    return WithRetryAfter(WithReason(ResourceExhausted("{} requests are waiting, the limit is {}",
                                                       waiting_.requests, limits_.requests),
                                     "QUEUE_FULL"),
                          RetryAfter(waiting_.requests, rate_.requests_per_second));
  }
  if (waiting_.requests > 0 && waiting_.prompt_tokens > limits_.prompt_tokens - prompt_tokens) {
    return WithRetryAfter(
        WithReason(
            ResourceExhausted("{} prompt tokens are waiting, the limit is {}, this request has {}",
                              waiting_.prompt_tokens, limits_.prompt_tokens, prompt_tokens),
            "QUEUED_TOKENS"),
        RetryAfter(waiting_.prompt_tokens, rate_.prompt_tokens_per_second));
  }
  return absl::OkStatus();
}

void RequestQueue::Close() {
  MutexLock lock(&mutex_);
  closed_ = true;
}

std::vector<Request> RequestQueue::Take() {
  MutexLock lock(&mutex_);
  woken_ = false;
  return std::exchange(arrivals_, {});
}

void RequestQueue::Release(int64_t prompt_tokens) {
  MutexLock lock(&mutex_);
  --waiting_.requests;
  waiting_.prompt_tokens -= prompt_tokens;
  TLM_CHECK(waiting_.requests >= 0 && waiting_.prompt_tokens >= 0);
}

void RequestQueue::SetDrainRate(const DrainRate& rate) {
  MutexLock lock(&mutex_);
  rate_ = rate;
}

void RequestQueue::WaitForWork(absl::Duration timeout) {
  // Longer waits overflow the system's clock; waking early is allowed.
  timeout = std::min(timeout, absl::Hours(1));
  MutexLock lock(&mutex_);
  if (!arrivals_.empty() || woken_ || timeout <= absl::ZeroDuration()) return;
  work_.WaitFor(&mutex_, absl::ToChronoNanoseconds(timeout));
}

void RequestQueue::Wake() {
  MutexLock lock(&mutex_);
  woken_ = true;
  work_.NotifyOne();
}

QueueLoad RequestQueue::waiting() const {
  MutexLock lock(&mutex_);
  return waiting_;
}

}  // namespace tlm
