// How many prefill tokens a step may have, so that a long prompt does not stall running streams.
#ifndef TLM_SERVER_BATCHING_PREFILL_THROTTLE_H_
#define TLM_SERVER_BATCHING_PREFILL_THROTTLE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "absl/time/time.h"

namespace tlm {

// The last three of a series of measurements.
class RecentSamples {
 public:
  void Add(double sample);
  bool empty() const { return count_ == 0; }
  bool full() const { return count_ == kSize; }
  double last() const { return samples_[0]; }
  // What no chance has made longer.
  double Smallest() const;
  // Of three, what two agree on; of fewer, the largest.
  double Middle() const;

 private:
  static constexpr size_t kSize = 3;

  std::array<double, kSize> samples_{};  // the last one first
  size_t count_ = 0;
};

// Takes a step to last
//
//   seconds = alone(decodes) + per_token * prefill tokens
//
// and chooses the prefill tokens so that this is at most stretch * alone(decodes). Both are
// measured all the time and used for the very next step. alone() is remembered for each size of a
// step; per_token follows the prompt being prefilled, as a token costs more the further it is from
// its beginning. What was never measured is tried out with few tokens first. Not thread-safe;
// without a clock of its own.
class PrefillThrottle {
 public:
  static constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max();

  // `stretch`: >= 1, or 0 for no bound.
  explicit PrefillThrottle(double stretch) : stretch_(stretch) {}

  // A step computed one token for each of `decodes` sequences and `prefill_tokens` of others.
  void Record(int64_t decodes, int64_t prefill_tokens, absl::Duration elapsed);
  // For the next step, when it is to have that many decodes: at least one, so that prompts always
  // get on, but none once in a while to measure the decodes alone. kUnbounded when there is nothing
  // to stall.
  int64_t PrefillTokens(int64_t decodes) const;
  // As many as make a step last kShortStep times one that computes a single token: for steps whose
  // end another tenant may wait for. At least kMinShortStep, which is also what it is while
  // nothing was measured.
  int64_t ShortStepTokens() const;
  static constexpr double kShortStep = 4;
  static constexpr int64_t kMinShortStep = 16;

 private:
  // Steps with about the same number of decodes.
  struct Size {
    RecentSamples alone_seconds;
    int64_t mixed_steps = 0;  // since the last sample
  };
  // Two sizes for each power of two.
  static constexpr size_t kSizes = 64;

  static size_t SizeIndex(int64_t decodes);
  void RecordMixed(int64_t decodes, int64_t prefill_tokens, double seconds);
  void RecordPrefillAlone(int64_t prefill_tokens, double seconds);
  // 0 while nothing is known.
  double AloneSeconds(int64_t decodes) const;
  double TokenSeconds() const;

  const double stretch_;
  std::array<Size, kSizes> sizes_;
  RecentSamples token_seconds_;  // of a prefill token, beside decodes
  int64_t tried_tokens_ = 0;     // the most prefill tokens of a step that had decodes too
};

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_PREFILL_THROTTLE_H_
