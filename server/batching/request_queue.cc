#include "server/batching/request_queue.h"

#include <algorithm>
#include <utility>

#include "model/base/errors.h"
#include "server/observe/refusals.h"

namespace tlm {
namespace {

// Used while no rate is known.
constexpr absl::Duration kGuessedRetry = absl::Seconds(1);
constexpr absl::Duration kShortestRetry = absl::Milliseconds(50);
constexpr absl::Duration kLongestRetry = absl::Minutes(1);
// Work that starts and misses its deadline costs as much as work that meets it. So under load a
// request is taken only if waiting and running probably fit into this share of its remaining time.
constexpr double kLikelyShare = 0.8;
// A wait below this share of the remaining time refuses nothing: the running time dominates then.
constexpr double kShortWaitShare = 0.1;

std::string Format(absl::Duration duration) {
  return absl::FormatDuration(absl::Trunc(duration, absl::Milliseconds(1)));
}

}  // namespace

bool RequestQueue::Place::operator<(const Place& other) const {
  if (priority != other.priority) return priority > other.priority;
  if (tenant != other.tenant) return tenant < other.tenant;
  return deadline < other.deadline;
}

RequestQueue::Place RequestQueue::PlaceOf(const Request& request) {
  return {request.priority, request.tenant, request.deadline};
}

absl::Status RequestQueue::Push(Request&& request, absl::Time now, int64_t cached_tokens) {
  MutexLock lock(&mutex_);
  TLM_RETURN_IF_ERROR(CheckClosed());
  const int64_t input_tokens = InputTokens(request);
  const QueueLoad ahead = Ahead(PlaceOf(request));
  TLM_RETURN_IF_ERROR(CheckFeasible(request, ahead, cached_tokens, now));
  TLM_RETURN_IF_ERROR(CheckRoom(input_tokens, now));
  TLM_RETURN_IF_ERROR(CheckWait(request, ahead, now));
  Waiting& place = places_[PlaceOf(request)];
  place.running_time = std::max(place.running_time, RunningTime(request));
  for (QueueLoad* load : {&waiting_, &place.load}) {
    ++load->requests;
    load->prompt_tokens += input_tokens;
  }
  arrivals_.push_back(std::move(request));
  arrivals_.back().arrival = now;
  work_.NotifyOne();
  return absl::OkStatus();
}

absl::Status RequestQueue::CheckOpen(absl::Time now) {
  MutexLock lock(&mutex_);
  TLM_RETURN_IF_ERROR(CheckClosed());
  return CheckRoom(1, now);
}

absl::Status RequestQueue::CheckClosed() const {
  if (!closed_) return absl::OkStatus();
  return WithRetryAfter(
      WithReason(Unavailable("the server is shutting down and takes no new requests"), "DRAINING"),
      kGuessedRetry);
}

absl::Status RequestQueue::CheckRoom(int64_t input_tokens, absl::Time now) {
  if (waiting_.requests >= limits_.requests) {
    const absl::Duration one = estimates_.TimePerRequest();
    return QueueFull(RetryAfter(one, one, now), "{} requests are waiting, the limit is {}",
                     waiting_.requests, limits_.requests);
  }
  if (waiting_.requests > 0 && waiting_.prompt_tokens > limits_.prompt_tokens - input_tokens) {
    const int64_t excess = waiting_.prompt_tokens + input_tokens - limits_.prompt_tokens;
    const absl::Duration room_in =
        estimates_.TimeForTokens(std::min(excess, waiting_.prompt_tokens));
    return WithRetryAfter(
        WithReason(
            ResourceExhausted("{} prompt tokens are waiting, the limit is {}, this request has {}",
                              waiting_.prompt_tokens, limits_.prompt_tokens, input_tokens),
            "QUEUED_TOKENS"),
        RetryAfter(room_in, estimates_.TimeForTokens(input_tokens), now));
  }
  return absl::OkStatus();
}

absl::Status RequestQueue::CheckFeasible(const Request& request, const QueueLoad& ahead,
                                         int64_t cached_tokens, absl::Time now) const {
  const LeastWork least = LeastWorkOf(request, cached_tokens);
  if (least.prefill_tokens == 0) return absl::OkStatus();
  if (!estimates_.Unreachable(ahead, least, now, request.deadline)) return absl::OkStatus();
  return WithReason(
      DeadlineExceeded("{} are left until the deadline; by the measured rates the least that is "
                       "asked for takes {}, and the queue before it {}",
                       Format(request.deadline - now), Format(estimates_.LeastTime(least, now)),
                       Format(estimates_.QueueTime(ahead))),
      "INFEASIBLE");
}

absl::Status RequestQueue::CheckWait(const Request& request, const QueueLoad& ahead,
                                     absl::Time now) {
  const absl::Duration one = estimates_.TimePerRequest();
  const absl::Duration wait = estimates_.QueueTime(ahead);
  if (wait > max_time_) {
    return QueueFull(RetryAfter(wait - max_time_, one, now),
                     "the queue takes about {}, the limit is {}", Format(wait), Format(max_time_));
  }
  const absl::Duration left = request.deadline - now;
  const absl::Duration running = RunningTime(request);
  if (wait > left * kShortWaitShare && wait + running > left * kLikelyShare) {
    return QueueFull(RetryAfter(wait + running - left * kLikelyShare, one, now),
                     "{} are left until the deadline, the queue takes about {} and the request {}",
                     Format(left), Format(wait), Format(running));
  }
  if (!MakesOthersLate(PlaceOf(request), ahead, InputTokens(request), now)) {
    return absl::OkStatus();
  }
  return QueueFull(RetryAfter(one, one, now),
                   "others that wait, with later deadlines, would miss theirs");
}

absl::Duration RequestQueue::RunningTime(const Request& request) const {
  // The request may end at its soft deadline with whatever is done.
  if (request.soft_deadline < request.deadline) return absl::ZeroDuration();
  return estimates_.LikelyTime(request);
}

QueueLoad RequestQueue::Ahead(const Place& place) const {
  QueueLoad ahead;
  for (const auto& [other, waiting] : places_) {
    if (other.priority < place.priority) break;
    const bool before = other.priority > place.priority ||
                        (other.tenant == place.tenant && other.deadline <= place.deadline);
    if (!before) continue;
    ahead.requests += waiting.load.requests;
    ahead.prompt_tokens += waiting.load.prompt_tokens;
  }
  return ahead;
}

bool RequestQueue::MakesOthersLate(const Place& place, QueueLoad ahead, int64_t input_tokens,
                                   absl::Time now) const {
  for (auto it = places_.upper_bound(place); it != places_.end(); ++it) {
    const auto& [other, waiting] = *it;
    if (other.priority != place.priority || other.tenant != place.tenant) break;
    ahead.requests += waiting.load.requests;
    ahead.prompt_tokens += waiting.load.prompt_tokens;
    // The last request there does not wait for itself.
    const QueueLoad own{1, waiting.load.prompt_tokens / waiting.load.requests};
    const QueueLoad without{ahead.requests - own.requests, ahead.prompt_tokens - own.prompt_tokens};
    const QueueLoad with{without.requests + 1, without.prompt_tokens + input_tokens};
    const absl::Duration spare = (other.deadline - now) * kLikelyShare - waiting.running_time;
    if (estimates_.QueueTime(without) <= spare && estimates_.QueueTime(with) > spare) return true;
  }
  return false;
}

absl::Duration RequestQueue::RetryAfter(absl::Duration room_in, absl::Duration share,
                                        absl::Time now) {
  if (share <= absl::ZeroDuration()) return kGuessedRetry;
  // Once all that wait now have started, there is room whatever was promised.
  const absl::Time latest = now + std::max(room_in, estimates_.QueueTime(waiting_));
  promised_ = std::min(std::max(promised_ + share, now + room_in), latest);
  return std::clamp(promised_ - now, kShortestRetry, kLongestRetry);
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

void RequestQueue::Release(const Request& request, int64_t input_tokens) {
  MutexLock lock(&mutex_);
  const auto place = places_.find(PlaceOf(request));
  TLM_CHECK(place != places_.end());
  for (QueueLoad* load : {&waiting_, &place->second.load}) {
    --load->requests;
    load->prompt_tokens -= input_tokens;
    TLM_CHECK(load->requests >= 0 && load->prompt_tokens >= 0);
  }
  if (place->second.load.requests == 0) places_.erase(place);
}

void RequestQueue::SetEstimates(const ServiceEstimates& estimates) {
  MutexLock lock(&mutex_);
  estimates_ = estimates;
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

bool RequestQueue::closed() const {
  MutexLock lock(&mutex_);
  return closed_;
}

ServiceEstimates RequestQueue::estimates() const {
  MutexLock lock(&mutex_);
  return estimates_;
}

}  // namespace tlm
