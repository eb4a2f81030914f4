#include "server/admission/admission.h"

#include <algorithm>
#include <chrono>

#include "model/base/errors.h"
#include "server/observe/refusals.h"

namespace tlm {
namespace {

// A replica that starts or stops, or another one, is worth asking again after about a second; the
// load of a running one changes faster than clients can usefully poll.
constexpr absl::Duration kRetryAfter = absl::Seconds(1);
// Condition variables take nanoseconds of the steady clock; this limit keeps long timeouts within
// them.
constexpr absl::Duration kLongestWait = absl::Hours(24 * 365);

absl::Status Refusal(absl::Status status, std::string_view reason) {
  return WithRetryAfter(WithReason(std::move(status), reason), kRetryAfter);
}

// Each tenant has a priority limit, because priority outranks fairness between tenants.
absl::Status CheckPriority(const AdmissionRequest& request) {
  const int64_t limit = request.caller.limits.max_priority;
  if (request.priority <= limit) return absl::OkStatus();
  return WithField(WithReason(absl::PermissionDeniedError(fmt::format(
                                  "scheduling.priority is {}, the limit of this tenant is {}",
                                  request.priority, limit)),
                              "TENANT_PRIORITY"),
                   "scheduling.priority");
}

}  // namespace

Admission::Ticket::Ticket(Admission* admission, const AdmissionRequest& request)
    : admission_(admission),
      tenant_(request.caller.tenant),
      limits_(request.caller.limits),
      request_id_(request.request_id),
      tokens_(request.tokens) {}

Admission::Ticket::Ticket(Ticket&& other) noexcept
    : admission_(std::exchange(other.admission_, nullptr)),
      tenant_(std::move(other.tenant_)),
      limits_(other.limits_),
      request_id_(std::exchange(other.request_id_, {})),
      tokens_(other.tokens_) {}

Admission::Ticket& Admission::Ticket::operator=(Ticket&& other) noexcept {
  std::swap(admission_, other.admission_);
  std::swap(tenant_, other.tenant_);
  std::swap(limits_, other.limits_);
  std::swap(request_id_, other.request_id_);
  std::swap(tokens_, other.tokens_);
  return *this;
}

Admission::Ticket::~Ticket() {
  if (admission_ == nullptr) return;
  FreeRequestId();
  admission_->Release(*this);
}

void Admission::Ticket::FreeRequestId() {
  if (request_id_.empty()) return;
  admission_->FreeId(*this);
  request_id_.clear();
}

void Admission::Ticket::ChargeOutput(int64_t tokens) {
  if (admission_ != nullptr) admission_->ChargeOutput(*this, tokens);
}

void Admission::Ticket::Refund() {
  if (admission_ != nullptr) admission_->Refund(*this);
}

Admission::Admission(const AdmissionLimits& limits, Clock& clock,
                     std::function<absl::Status()> check_queue)
    : limits_(limits), clock_(clock), check_queue_(std::move(check_queue)) {}

absl::Status Admission::Enter(const Principal& caller) {
  {
    MutexLock lock(&mutex_);
    TLM_RETURN_IF_ERROR(CheckOpen());
  }
  if (check_queue_ != nullptr) TLM_RETURN_IF_ERROR(check_queue_());
  const absl::Time now = clock_.Now();
  MutexLock lock(&mutex_);
  TLM_RETURN_IF_ERROR(quotas_.Check(caller.tenant, caller.limits, 1, now));
  return quotas_.CountRequest(caller.tenant, caller.limits, now);
}

absl::Status Admission::CountRequest(const Principal& caller) {
  const absl::Time now = clock_.Now();
  MutexLock lock(&mutex_);
  return quotas_.CountRequest(caller.tenant, caller.limits, now);
}

absl::Status Admission::CheckOpen() const {
  if (state_ == State::kStarting) {
    return Refusal(Unavailable("the server is starting"), "STARTING");
  }
  if (state_ == State::kDraining) {
    return Refusal(Unavailable("the server is shutting down"), "DRAINING");
  }
  if (calls_ < limits_.max_calls) return absl::OkStatus();
  return QueueFull(kRetryAfter, "{} calls are active, the limit is {}", calls_, limits_.max_calls);
}

absl::StatusOr<Admission::Ticket> Admission::Admit(const AdmissionRequest& request) {
  const absl::Time now = clock_.Now();
  const Principal& caller = request.caller;
  TLM_RETURN_IF_ERROR(CheckPriority(request));
  MutexLock lock(&mutex_);
  TLM_RETURN_IF_ERROR(CheckOpen());
  if (request.deadline <= now) return Expired(RequestStage::kArriving);
  TLM_RETURN_IF_ERROR(quotas_.Check(caller.tenant, caller.limits, request.tokens, now));
  if (request.tokens > limits_.max_tokens - tokens_) {
    return Refusal(ResourceExhausted("active calls hold {} prompt tokens, {} more exceed the limit "
                                     "of {}",
                                     tokens_, request.tokens, limits_.max_tokens),
                   "QUEUED_TOKENS");
  }
  if (!request.request_id.empty() &&
      !active_ids_.emplace(caller.tenant, request.request_id).second) {
    return WithField(AlreadyExists("request_id is in use by an active request"), "request_id");
  }
  ++calls_;
  tokens_ += request.tokens;
  quotas_.Begin(caller.tenant, caller.limits, request.tokens, now);
  return Ticket(this, request);
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

void Admission::FreeId(const Ticket& ticket) {
  MutexLock lock(&mutex_);
  active_ids_.erase({ticket.tenant_, ticket.request_id_});
}

void Admission::ChargeOutput(const Ticket& ticket, int64_t tokens) {
  const absl::Time now = clock_.Now();
  MutexLock lock(&mutex_);
  quotas_.Charge(ticket.tenant_, ticket.limits_, tokens, now);
}

void Admission::Refund(const Ticket& ticket) {
  const absl::Time now = clock_.Now();
  MutexLock lock(&mutex_);
  quotas_.Refund(ticket.tenant_, ticket.limits_, ticket.tokens_, now);
}

void Admission::Release(const Ticket& ticket) {
  MutexLock lock(&mutex_);
  tokens_ -= ticket.tokens_;
  quotas_.End(ticket.tenant_, ticket.limits_);
  if (--calls_ == 0) changed_.NotifyAll();
}

}  // namespace tlm
