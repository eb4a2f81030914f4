#include "server/admission/admission.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "model/base/error_details.h"
#include "model/base/errors.h"

namespace tlm {
namespace {

// A replica that starts or stops is worth asking again (or another one) after about a second; how
// full a running one is changes faster than clients can usefully poll.
constexpr absl::Duration kRetryAfter = absl::Seconds(1);
// Condition variables take the steady clock's nanoseconds: keep far-away timeouts within them.
constexpr absl::Duration kLongestWait = absl::Hours(24 * 365);

absl::Status Refusal(absl::Status status, std::string_view reason) {
  return WithRetryAfter(WithReason(std::move(status), reason), kRetryAfter);
}

}  // namespace

Admission::Ticket::Ticket(Admission* admission, std::string request_id, int64_t tokens)
    : admission_(admission), request_id_(std::move(request_id)), tokens_(tokens) {}

Admission::Ticket::Ticket(Ticket&& other) noexcept
    : admission_(std::exchange(other.admission_, nullptr)),
      request_id_(std::exchange(other.request_id_, {})),
      tokens_(other.tokens_) {}

Admission::Ticket& Admission::Ticket::operator=(Ticket&& other) noexcept {
  std::swap(admission_, other.admission_);
  std::swap(request_id_, other.request_id_);
  std::swap(tokens_, other.tokens_);
  return *this;
}

Admission::Ticket::~Ticket() {
  if (admission_ == nullptr) return;
  FreeRequestId();
  admission_->Release(tokens_);
}

void Admission::Ticket::FreeRequestId() {
  if (request_id_.empty()) return;
  admission_->FreeId(request_id_);
  request_id_.clear();
}

Admission::Admission(const AdmissionLimits& limits, Clock& clock)
    : limits_(limits), clock_(clock) {}

absl::Status Admission::CheckOpen() const {
  MutexLock lock(&mutex_);
  return CheckOpenLocked();
}

absl::Status Admission::CheckOpenLocked() const {
  if (state_ == State::kStarting) {
    return Refusal(Unavailable("the server is starting"), "STARTING");
  }
  if (state_ == State::kDraining) {
    return Refusal(Unavailable("the server is shutting down"), "DRAINING");
  }
  if (calls_ < limits_.max_calls) return absl::OkStatus();
  return Refusal(
      ResourceExhausted("{} calls are active, the limit is {}", calls_, limits_.max_calls),
      "QUEUE_FULL");
}

absl::StatusOr<Admission::Ticket> Admission::Admit(const std::string& request_id, int64_t tokens,
                                                   absl::Time deadline) {
  const absl::Time now = clock_.Now();
  MutexLock lock(&mutex_);
  TLM_RETURN_IF_ERROR(CheckOpenLocked());
  if (deadline <= now) {
    return WithReason(DeadlineExceeded("the deadline passed before the request was queued"),
                      "EXPIRED_IN_QUEUE");
  }
  if (tokens > limits_.max_tokens - tokens_) {
    return Refusal(ResourceExhausted("active calls hold {} prompt tokens, {} more exceed the limit "
                                     "of {}",
                                     tokens_, tokens, limits_.max_tokens),
                   "QUEUED_TOKENS");
  }
  if (!active_ids_.insert(request_id).second) {
    return WithField(AlreadyExists("request_id is in use by an active request"), "request_id");
  }
  ++calls_;
  tokens_ += tokens;
  return Ticket(this, request_id, tokens);
}

void Admission::Open() {
  MutexLock lock(&mutex_);
  if (state_ == State::kStarting) state_ = State::kServing;
}

void Admission::Drain() {
  MutexLock lock(&mutex_);
  state_ = State::kDraining;
}

bool Admission::WaitUntilEmpty(absl::Duration timeout) {
  const auto end =
      std::chrono::steady_clock::now() +
      absl::ToChronoNanoseconds(std::clamp(timeout, absl::ZeroDuration(), kLongestWait));
  MutexLock lock(&mutex_);
  while (calls_ > 0 && !interrupted_) {
    const auto left = end - std::chrono::steady_clock::now();
    if (left <= left.zero()) break;
    changed_.WaitFor(&mutex_, left);
  }
  return calls_ == 0;
}

void Admission::Interrupt() {
  MutexLock lock(&mutex_);
  interrupted_ = true;
  changed_.NotifyAll();
}

int64_t Admission::active_calls() const {
  MutexLock lock(&mutex_);
  return calls_;
}

void Admission::FreeId(const std::string& request_id) {
  MutexLock lock(&mutex_);
  active_ids_.erase(request_id);
}

void Admission::Release(int64_t tokens) {
  MutexLock lock(&mutex_);
  tokens_ -= tokens;
  if (--calls_ == 0) changed_.NotifyAll();
}

}  // namespace tlm
