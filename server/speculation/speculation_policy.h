// Decides how many tokens to guess: a pure policy without model, thread or clock.
#ifndef TLM_SERVER_SPECULATION_SPECULATION_POLICY_H_
#define TLM_SERVER_SPECULATION_SPECULATION_POLICY_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/time/time.h"

namespace tlm {

// The time of a decoding step, by its number of tokens (one per sequence, and all draft tokens).
// Measured all the time; old measurements fade with the number of later steps.
//
//   seconds                          o measured: a mean of medians of three
//      |               .  ' not yet  - between: interpolated, never falling
//      |    o -- o - o               . beyond the last: twice the tokens cost a quarter more, or
//      |  o                            the last slope; in proportion above twice the tokens
//      +-------------------- tokens
//
// So untried sizes look cheap, but only up to twice the tokens of the largest tried size. The
// estimate of a size that was tried long ago returns to the same guess, so the size is soon tried
// again. Not thread-safe.
class StepCosts {
 public:
  // Records a step of `tokens` >= 1 tokens; never call it for steps with prompts. A single step
  // that took far longer than its predecessors does not count. Changes between consecutive steps of
  // one size, as contexts grow, are applied to all sizes.
  void Record(int64_t tokens, absl::Duration elapsed);
  // Returns the estimated time; rises with `tokens` >= 1. Zero while nothing was measured.
  absl::Duration Estimate(int64_t tokens) const;
  // Returns whether a step of `tokens` tokens, or slightly fewer, was recorded lately: within twice
  // the pause before it, clamped to kMinFreshSteps to kFreshSteps steps.
  bool IsFresh(int64_t tokens) const;
  static constexpr int64_t kMinFreshSteps = 16;
  static constexpr int64_t kFreshSteps = 128;

 private:
  struct Point {
    int64_t tokens = 0;  // rounded down to five significant bits
    std::array<double, 2> last = {};
    int64_t samples = 0;
    double mean = 0;          // seconds
    double weight = 0;        // in samples, when the last sample came
    int64_t step = 0;         // number of the last sample's step
    int64_t fresh_steps = 0;  // steps from then on in which it is fresh
    double estimate = 0;      // seconds, from all points
  };

  // Returns the weight of the point's measurements now.
  double Weight(const Point& point) const;
  void Scale(const Point& known, double factor);
  void AddSample(Point& point, double seconds);
  // Makes the estimates from the measurements.
  void Fit();
  // Returns the guess, in seconds, for more tokens than the last point of `known` has.
  static double Beyond(std::span<const Point> known, int64_t tokens);

  int64_t steps_ = 0;
  std::vector<Point> points_;  // by tokens
};

// The cost of asking a DraftSource, and a budget for trials while asking does not pay: without
// trials there is nothing to measure. Not thread-safe.
class DraftCosts {
 public:
  // Records a call that computed `behind` missing tokens (not counting the two at most that each
  // sequence lacks after a draft) and then guessed in `rounds` >= 1 rounds.
  void Record(int64_t behind, int64_t rounds, absl::Duration elapsed);
  // Returns the time of one round. Zero while nothing was measured.
  absl::Duration Round() const { return round_; }
  absl::Duration CatchUp(int64_t behind) const { return behind * token_; }
  // Records a step's time: kTrialShare of it may be spent on trials.
  void AddStep(absl::Duration elapsed) {
    credit_ = std::min(credit_ + elapsed * kTrialShare, kMaxCredit);
  }
  // Returns whether there is credit for a trial of this size; if so, the credit is spent.
  bool TakeTrial(int64_t behind, int64_t rounds);
  static constexpr double kTrialShare = 0.01;
  // The most credit: a longer pause does not add more.
  static constexpr absl::Duration kMaxCredit = absl::Milliseconds(200);

 private:
  absl::Duration round_;
  absl::Duration token_;
  absl::Duration credit_;
};

// The guess that one sequence could make for the next step.
struct DraftCandidate {
  // As in Draft; for a draft model, which has not guessed yet, estimates by depth.
  std::span<const double> chances;
  // The draft model has yet to guess its tokens, one per round for all such sequences.
  bool by_model = false;
};

// Returns the draft length of each candidate, at most the number of its chances. Maximizes the
// expected tokens per second,
//
//   (sequences + sum of the chances that a draft token is reached and right)
//   / (costs(sequences + draft tokens) + rounds * round_time)
//
// where rounds is the longest length of a by_model candidate. Tokens less likely than kMinReach are
// left out. All 0 unless the maximum is at least kMinGain times the rate without drafts, and while
// the costs without drafts are unknown or no longer fresh: a step without drafts measures them.
// `sequences` >= 1: the sequences that decode in the step, candidates included. `max_tokens`: the
// limit for all drafts together. O(n log n) for n tokens, times the number of rounds.
std::vector<int64_t> ChooseDraftLengths(std::span<const DraftCandidate> candidates,
                                        int64_t sequences, const StepCosts& costs,
                                        absl::Duration round_time, int64_t max_tokens);
inline constexpr double kMinGain = 1.05;
inline constexpr double kMinReach = 1.0 / 64;

}  // namespace tlm

#endif  // TLM_SERVER_SPECULATION_SPECULATION_POLICY_H_
