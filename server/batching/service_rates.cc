#include "server/batching/service_rates.h"

#include <algorithm>
#include <bit>

#include "model/base/errors.h"

namespace tlm {
namespace {

// An estimate that nothing has confirmed for this long counts half. So an estimate that refuses all
// work soon lets some through, and that work is measured.
constexpr double kStaleSeconds = 5;
// The least weight of the newest output in the average.
constexpr double kOutputWeight = 0.1;

// Returns the i with tokens in [2^i, 2^(i+1)); at most `largest`.
size_t SizeOf(int64_t tokens, size_t largest) {
  return std::min(static_cast<size_t>(std::bit_width(static_cast<uint64_t>(tokens))) - 1, largest);
}

int64_t DivideUp(int64_t value, int64_t by) { return (value + by - 1) / by; }

double SecondsAt(int64_t count, double per_second) {
  return per_second > 0 ? static_cast<double>(count) / per_second : 0;
}

// Never infinite: an overflowing quotient becomes a year.
absl::Duration ToDuration(double seconds) {
  return absl::Seconds(std::min(seconds, 365.0 * 24 * 3600));
}

// Returns the rate including the time since `recorded`, in which nothing was recorded.
double PerSecondUntil(RateMeter meter, absl::Time recorded, absl::Time now) {
  if (recorded != absl::InfinitePast()) meter.Record(0, now - recorded);
  return meter.per_second();
}

}  // namespace

LeastWork LeastWorkOf(const Request& request, int64_t cached_tokens) {
  if (request.soft_deadline < request.deadline) return {};
  int64_t tokens = InputTokens(request);
  int64_t steps = 0;
  // The last token of a continuation is only looked up, not computed.
  if (request.score() != nullptr) {
    tokens -= static_cast<int64_t>(request.score()->continuations.size());
  }
  if (request.forward() != nullptr) tokens = request.forward()->positions.back() + 1;
  if (request.generate() != nullptr) {
    const int64_t wanted = std::max<int64_t>(request.generate()->stop.min_new_tokens, 1);
    const int64_t done = static_cast<int64_t>(request.generate()->generated.size());
    // The prefill gives the first token.
    if (request.generate()->claimed.empty()) steps = std::max<int64_t>(wanted - done - 1, 0);
  }
  return {.prefill_tokens = std::max<int64_t>(tokens - cached_tokens, 1), .decode_steps = steps};
}

void WindowedMin::Record(double seconds, absl::Duration elapsed) {
  const double kept = std::exp(-absl::ToDoubleSeconds(elapsed) / kMemorySeconds);
  const double faded = samples_ == 0 ? seconds : seconds + (fastest_ - seconds) * kept;
  fastest_ = std::min(seconds, faded);
  samples_ = std::min(samples_ + 1, kMinSamples);
}

double ServiceEstimates::SecondsForRequests(int64_t requests) const {
  // A rate that fades while no request starts soon overstates the time that has passed.
  return std::min(SecondsAt(requests, requests_per_second_),
                  static_cast<double>(requests) * longest_pause_seconds_);
}

double ServiceEstimates::SecondsForTokens(const QueueLoad& ahead) const {
  const double seconds = SecondsAt(ahead.prompt_tokens, prompt_tokens_per_second_);
  if (fastest_token_seconds_ == 0 || requests_per_second_ == 0) return seconds;
  // Short prompts that waited for places say nothing about the speed of long prompts.
  const double mean_tokens = prompt_tokens_per_second_ / requests_per_second_;
  const double usual = mean_tokens * static_cast<double>(ahead.requests);
  const double excess = std::max(static_cast<double>(ahead.prompt_tokens) - usual, 0.0);
  return std::min(seconds, SecondsForRequests(ahead.requests) +
                               kMargin * PrefillSeconds(static_cast<int64_t>(excess)));
}

absl::Duration ServiceEstimates::QueueTime(const QueueLoad& ahead) const {
  if (!backlog_) return absl::ZeroDuration();
  // The two agree on a queue like the drained one; for another mix the slower one decides.
  return ToDuration(std::max(SecondsForRequests(ahead.requests), SecondsForTokens(ahead)));
}

absl::Duration ServiceEstimates::TimePerRequest() const {
  return ToDuration(SecondsAt(1, requests_per_second_));
}

absl::Duration ServiceEstimates::TimeForTokens(int64_t prompt_tokens) const {
  return ToDuration(SecondsAt(prompt_tokens, prompt_tokens_per_second_));
}

double ServiceEstimates::PrefillSeconds(int64_t tokens) const {
  if (std::min(tokens, max_prefill_tokens_) <= 2 * largest_prefill_) {
    return fastest_token_seconds_ * static_cast<double>(tokens);
  }
  // Steps much larger than any measured step may be faster per token, but not faster in total.
  return largest_prefill_seconds_ * static_cast<double>(DivideUp(tokens, max_prefill_tokens_));
}

double ServiceEstimates::LeastSeconds(const LeastWork& work, absl::Time now) const {
  const double seconds = PrefillSeconds(work.prefill_tokens) +
                         fastest_step_seconds_ * static_cast<double>(work.decode_steps);
  if (seconds == 0) return 0;
  const double stale = std::max(absl::ToDoubleSeconds(now - measured_), 0.0);
  return seconds * std::exp2(-stale / kStaleSeconds);
}

absl::Duration ServiceEstimates::LeastTime(const LeastWork& work, absl::Time now) const {
  return ToDuration(LeastSeconds(work, now));
}

bool ServiceEstimates::Unreachable(const QueueLoad& ahead, const LeastWork& work, absl::Time now,
                                   absl::Time deadline) const {
  const double queue =
      backlog_ ? std::min(SecondsForRequests(ahead.requests), SecondsForTokens(ahead)) : 0;
  return (queue + LeastSeconds(work, now)) / kMargin > absl::ToDoubleSeconds(deadline - now);
}

absl::Duration ServiceEstimates::LikelyTime(const Request& request) const {
  const LeastWork least = LeastWorkOf(request, /*cached_tokens=*/0);
  double steps = static_cast<double>(least.decode_steps);
  if (request.generate() != nullptr && request.generate()->claimed.empty()) {
    const GenerateWork& work = *request.generate();
    steps = std::max(steps, output_share_ * static_cast<double>(work.stop.max_new_tokens) -
                                static_cast<double>(work.generated.size()));
  }
  return ToDuration(PrefillSeconds(least.prefill_tokens) + steps * mean_step_seconds_);
}

double ServiceEstimates::PrefillTokensPerSecond(absl::Time now) const {
  return PerSecondUntil(prefill_tokens_, measured_, now);
}

double ServiceEstimates::DecodeTokensPerSecond(absl::Time now) const {
  return PerSecondUntil(decode_tokens_, measured_, now);
}

ServiceRates::ServiceRates(int64_t max_prefill_tokens) : max_prefill_tokens_(max_prefill_tokens) {
  TLM_CHECK(max_prefill_tokens > 0);
}

void ServiceRates::RecordStep(const Step& step, absl::Time now) {
  const int64_t tokens = step.prefill_tokens + step.decode_tokens;
  const double seconds = absl::ToDoubleSeconds(step.elapsed);
  // A clock too coarse for this step measures nothing.
  if (tokens > 0 && seconds > 0) {
    if (measured_ != absl::InfinitePast()) {
      const absl::Duration idle = now - measured_ - step.elapsed;
      prefill_tokens_.Record(0, idle);
      decode_tokens_.Record(0, idle);
      drained_requests_.Fade(idle);
      drained_tokens_.Fade(idle);
    }
    prefill_tokens_.Record(static_cast<double>(step.prefill_tokens), step.elapsed);
    decode_tokens_.Record(static_cast<double>(step.decode_tokens), step.elapsed);
    if (step.prefill_tokens > 0) {
      // A decode costs no less than a prefill token.
      fastest_token_[SizeOf(step.prefill_tokens, kSizes - 1)].Record(
          seconds / static_cast<double>(tokens), step.elapsed);
    }
    if (step.decode_tokens > 0) {
      fastest_step_.Record(seconds, step.elapsed);
      decode_steps_.Record(1, step.elapsed);
    }
  }
  measured_ = now;
}

void ServiceRates::RecordDrain(const QueueLoad& started, int64_t waiting, absl::Duration elapsed) {
  // Places that were free before a request waited say nothing about how soon the next one becomes
  // free.
  if (backlog_) {
    RecordPause(started.requests, elapsed);
    drained_requests_.Record(static_cast<double>(started.requests), elapsed);
    drained_tokens_.Record(static_cast<double>(started.prompt_tokens), elapsed);
  } else {
    drained_requests_.Fade(elapsed);
    drained_tokens_.Fade(elapsed);
  }
  backlog_ = waiting > 0;
}

void ServiceRates::RecordPause(int64_t started, absl::Duration elapsed) {
  if (!(elapsed >= absl::ZeroDuration())) return;
  pause_ += elapsed;
  longest_pause_ *= std::exp(-absl::FDivDuration(elapsed, kDrainMemory));
  if (started == 0) return;
  longest_pause_ = std::max(longest_pause_, pause_);
  pause_ = absl::ZeroDuration();
}

void ServiceRates::RecordOutput(int64_t tokens, int64_t max_new_tokens) {
  const double share =
      static_cast<double>(tokens) / static_cast<double>(std::max<int64_t>(max_new_tokens, 1));
  ++outputs_;
  const double weight = std::max(kOutputWeight, 1 / static_cast<double>(outputs_));
  output_share_ += weight * (share - output_share_);
}

void ServiceRates::RecordLateOutput() { RecordOutput(1, 1); }

ServiceEstimates ServiceRates::Estimates() const {
  ServiceEstimates estimates;
  estimates.max_prefill_tokens_ = max_prefill_tokens_;
  estimates.measured_ = measured_;
  for (size_t i = 0; i < kSizes; ++i) {
    const double seconds = fastest_token_[i].seconds();
    if (seconds == 0) continue;
    double& fastest = estimates.fastest_token_seconds_;
    fastest = fastest == 0 ? seconds : std::min(fastest, seconds);
    estimates.largest_prefill_ = int64_t{1} << i;
    estimates.largest_prefill_seconds_ = seconds * static_cast<double>(int64_t{1} << i);
  }
  estimates.fastest_step_seconds_ = fastest_step_.seconds();
  const double steps_per_second = decode_steps_.per_second();
  estimates.mean_step_seconds_ = steps_per_second > 0 ? 1 / steps_per_second : 0;
  if (drained_requests_.known() >= kMinDrain) {
    estimates.requests_per_second_ = drained_requests_.per_second();
    estimates.prompt_tokens_per_second_ = drained_tokens_.per_second();
    estimates.longest_pause_seconds_ = absl::ToDoubleSeconds(std::max(longest_pause_, pause_));
    estimates.backlog_ = backlog_;
  }
  estimates.prefill_tokens_ = prefill_tokens_;
  estimates.decode_tokens_ = decode_tokens_;
  estimates.output_share_ = output_share_;
  return estimates;
}

}  // namespace tlm
