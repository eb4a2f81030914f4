#include "server/batching/prefill_throttle.h"

#include <algorithm>
#include <cmath>

namespace tlm {
namespace {

// The first limit that is tried; then twice as much as was tried before.
constexpr int64_t kFirstTokens = 16;

// Mixed steps before one step without prefill measures the decodes again, whose own contexts grow.
// Fewer while a size has been measured less than three times.
constexpr int64_t kMixedSteps = 64;
constexpr int64_t kMixedStepsOfNewSize = 2;

// Prefill that takes less than this share of the decodes' time says nothing about its own cost.
constexpr double kMinShare = 0.2;

}  // namespace

void RecentSamples::Add(double sample) {
  std::copy_backward(samples_.begin(), samples_.end() - 1, samples_.end());
  samples_[0] = sample;
  count_ = std::min(count_ + 1, kSize);
}

double RecentSamples::Smallest() const {
  return *std::min_element(samples_.begin(), samples_.begin() + count_);
}

double RecentSamples::Middle() const {
  if (!full()) return *std::max_element(samples_.begin(), samples_.begin() + count_);
  const auto& [a, b, c] = samples_;
  return std::max(std::min(a, b), std::min(std::max(a, b), c));
}

size_t PrefillThrottle::SizeIndex(int64_t decodes) {
  const double index = 2 * std::log2(static_cast<double>(std::max(decodes, int64_t{1})));
  return std::min(static_cast<size_t>(index), kSizes - 1);
}

void PrefillThrottle::Record(int64_t decodes, int64_t prefill_tokens, absl::Duration elapsed) {
  const double seconds = absl::ToDoubleSeconds(elapsed);
  if (!(seconds > 0)) return;  // too short for the clock
  if (decodes == 0) return RecordPrefillAlone(prefill_tokens, seconds);
  if (prefill_tokens > 0) return RecordMixed(decodes, prefill_tokens, seconds);
  Size& size = sizes_[SizeIndex(decodes)];
  size.alone_seconds.Add(seconds);
  size.mixed_steps = 0;
}

void PrefillThrottle::RecordMixed(int64_t decodes, int64_t prefill_tokens, double seconds) {
  ++sizes_[SizeIndex(decodes)].mixed_steps;
  const double alone = AloneSeconds(decodes);
  if (alone == 0) return;
  tried_tokens_ = std::max(tried_tokens_, prefill_tokens);
  const double tokens = static_cast<double>(prefill_tokens);
  const double expected = tokens * TokenSeconds();
  const double measured = seconds - alone;
  const double least = std::min(kMinShare, (stretch_ - 1) / 2) * alone;
  if (std::max(expected, measured) <= least) return;
  // A step may even be shorter than the decodes alone took: by chance, not because prefill is free.
  token_seconds_.Add(std::max(measured, expected / 4) / tokens);
}

// These chunks are large and cheaper per token than chunks next to decodes will be, so only a
// higher cost than estimated is recorded.
void PrefillThrottle::RecordPrefillAlone(int64_t prefill_tokens, double seconds) {
  if (prefill_tokens == 0) return;
  const double token_seconds = (seconds - AloneSeconds(1)) / static_cast<double>(prefill_tokens);
  if (prefill_tokens >= kFirstTokens && token_seconds > TokenSeconds()) {
    token_seconds_.Add(token_seconds);
  }
}

double PrefillThrottle::AloneSeconds(int64_t decodes) const {
  const size_t index = SizeIndex(decodes);
  // Fewer decodes take less time, but not in proportion: both estimates are rather too low than too
  // high.
  for (size_t i = index + 1; i-- > 0;) {
    if (!sizes_[i].alone_seconds.empty()) return sizes_[i].alone_seconds.Smallest();
  }
  for (size_t i = index + 1; i < kSizes; ++i) {
    if (sizes_[i].alone_seconds.empty()) continue;
    return sizes_[i].alone_seconds.Smallest() * std::exp2(-0.5 * static_cast<double>(i - index));
  }
  return 0;
}

double PrefillThrottle::TokenSeconds() const {
  if (token_seconds_.empty()) return 0;
  // One slow step may be chance, or a prompt that costs more, so it counts at most twice the
  // median.
  const double median = token_seconds_.Middle();
  return std::clamp(token_seconds_.last(), median, 2 * median);
}

int64_t PrefillThrottle::ShortStepTokens() const {
  const double alone = AloneSeconds(1);
  const double token_seconds = TokenSeconds();
  if (alone == 0 || token_seconds == 0) return kMinShortStep;
  const double tokens = (kShortStep - 1) * alone / token_seconds;
  return std::max(kMinShortStep, static_cast<int64_t>(std::min(tokens, 1e9)));
}

int64_t PrefillThrottle::PrefillTokens(int64_t decodes) const {
  if (stretch_ <= 0 || decodes == 0) return kUnbounded;
  const double alone = AloneSeconds(decodes);
  if (alone == 0) return 0;
  const Size& size = sizes_[SizeIndex(decodes)];
  const bool well_known = size.alone_seconds.full();
  if (size.mixed_steps >= (well_known ? kMixedSteps : kMixedStepsOfNewSize)) return 0;
  const int64_t careful = std::max(kFirstTokens, 2 * tried_tokens_);
  const double token_seconds = TokenSeconds();
  if (token_seconds == 0) return careful;
  const double tokens = (stretch_ - 1) * alone / token_seconds;
  return std::max(int64_t{1}, static_cast<int64_t>(std::min(tokens, static_cast<double>(careful))));
}

}  // namespace tlm
