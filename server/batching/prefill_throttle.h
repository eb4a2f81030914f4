// Limits the prefill tokens of a step, so that a long prompt does not stall running streams.
#ifndef TLM_SERVER_BATCHING_PREFILL_THROTTLE_H_
#define TLM_SERVER_BATCHING_PREFILL_THROTTLE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "absl/time/time.h"

namespace tlm {

// The last three measurements of a series.
class RecentSamples {
 public:
  void Add(double sample);
  bool empty() const { return count_ == 0; }
  bool full() const { return count_ == kSize; }
  double last() const { return samples_[0]; }
  // Returns the smallest sample: the one that chance has lengthened least.
  double Smallest() const;
  // Returns the median of three samples; of fewer, the largest.
  double Middle() const;

 private:
  static constexpr size_t kSize = 3;

  std::array<double, kSize> samples_{};  // the last one first
  size_t count_ = 0;
};

// Models the time of a step as
//
//   seconds = alone(decodes) + per_token * prefill tokens
//
// and chooses the prefill tokens so that it is at most stretch * alone(decodes). Both terms are
// measured all the time and used for the very next step. alone() is kept for each size of a step;
// per_token follows the prompt being prefilled, because a token costs more the further it is from
// the prompt's start. Sizes that were never measured are tried with few tokens first. Not
// thread-safe; has no clock of its own.
class PrefillThrottle {
 public:
  static constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max();

  // `stretch`: >= 1, or 0 for no limit.
  explicit PrefillThrottle(double stretch) : stretch_(stretch) {}

  // A step computed one token for each of `decodes` sequences, and `prefill_tokens` of other
  // sequences.
  void Record(int64_t decodes, int64_t prefill_tokens, absl::Duration elapsed);
  // Returns the limit for the next step, if it has `decodes` decodes: at least 1, so that prompts
  // always progress, except that it is occasionally 0 to measure the decodes alone. kUnbounded when
  // no decode can stall.
  int64_t PrefillTokens(int64_t decodes) const;
  // Returns the most tokens for a step that lasts kShortStep times as long as a step with a single
  // token; for steps whose end another tenant may wait for. At least kMinShortStep, and exactly
  // that while nothing was measured.
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
  // Both return 0 while nothing is known.
  double AloneSeconds(int64_t decodes) const;
  double TokenSeconds() const;

  const double stretch_;
  std::array<Size, kSizes> sizes_;
  RecentSamples token_seconds_;  // per prefill token, next to decodes
  int64_t tried_tokens_ = 0;     // most prefill tokens of a step that also had decodes
};

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_PREFILL_THROTTLE_H_
