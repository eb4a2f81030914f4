// How many tokens are worth guessing: pure policy without model, thread or clock.
#ifndef TLM_SERVER_SPECULATION_SPECULATION_POLICY_H_
#define TLM_SERVER_SPECULATION_SPECULATION_POLICY_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/time/time.h"

namespace tlm {

// The time of a step that decodes, by the number of its tokens: those of every sequence and of
// every draft. Measured all the time; old measurements fade, by the number of steps since.
//
//   seconds                          o measured: a mean of medians of three
//      |               .  ' not yet  - between: interpolated, and never falling
//      |    o -- o - o               . behind: a quarter more for twice the tokens, or the
//      |  o                            last slope; in proportion from twice the tokens on
//      +-------------------- tokens
//
// So what was never tried looks cheap, but only up to twice as many tokens as were. The estimate of
// what was tried long ago goes back to the same guess: it is soon tried again. Not thread-safe.
class StepCosts {
 public:
  // A step of `tokens` >= 1 tokens took so long. Steps with prompts are not recorded. A single step
  // that took far longer than the ones before it does not count. What changes from step to step of
  // one size, as contexts grow, is taken to change all sizes alike.
  void Record(int64_t tokens, absl::Duration elapsed);
  // The estimate; rises with `tokens` >= 1. Zero while nothing was measured.
  absl::Duration Estimate(int64_t tokens) const;
  // Whether a step of so many tokens, or little fewer, was among the last ones recorded: of
  // kMinFreshSteps, doubled with each such step that comes only then, up to kFreshSteps.
  bool IsFresh(int64_t tokens) const;
  static constexpr int64_t kMinFreshSteps = 16;
  static constexpr int64_t kFreshSteps = 128;

 private:
  struct Point {
    int64_t tokens = 0;  // rounded down to five significant bits
    std::array<double, 2> last = {};
    int64_t samples = 0;
    double mean = 0;          // seconds
    double weight = 0;        // of so many samples, when the last one came
    int64_t step = 0;         // when that was
    int64_t fresh_steps = 0;  // from then on
    double estimate = 0;      // seconds, in the light of all points
  };

  // Of what `point` has measured, now.
  double Weight(const Point& point) const;
  void Scale(const Point& known, double factor);
  void AddSample(Point& point, double seconds);
  // Makes the estimates from the measurements.
  void Fit();
  // The guess for more tokens than those of the point that `known` ends with; in seconds.
  static double Beyond(std::span<const Point> known, int64_t tokens);

  int64_t steps_ = 0;
  std::vector<Point> points_;  // by tokens
};

// What it costs to ask a DraftSource, and what may be spent on asking where it does not pay: a
// guess that is never made tells nothing. Not thread-safe.
class DraftCosts {
 public:
  // A call computed `behind` tokens that were missing, besides the two at most that each sequence
  // lacks after a draft, then guessed in `rounds` >= 1 rounds.
  void Record(int64_t behind, int64_t rounds, absl::Duration elapsed);
  // Of one round. Zero while nothing was measured.
  absl::Duration Round() const { return round_; }
  absl::Duration CatchUp(int64_t behind) const { return behind * token_; }
  // A step has taken so long: kTrialShare of that may be spent on trials.
  void AddStep(absl::Duration elapsed) {
    credit_ = std::min(credit_ + elapsed * kTrialShare, kMaxCredit);
  }
  // Whether there is credit for a trial of that length; then it is spent.
  bool TakeTrial(int64_t behind, int64_t rounds);
  static constexpr double kTrialShare = 0.01;
  // Of credit: longer pauses do not count.
  static constexpr absl::Duration kMaxCredit = absl::Milliseconds(200);

 private:
  absl::Duration round_;
  absl::Duration token_;
  absl::Duration credit_;
};

// What one sequence could have guessed in the next step.
struct DraftCandidate {
  // As of Draft. Of a draft model, which has not guessed yet: estimates by depth.
  std::span<const double> chances;
  // Its tokens are still to be guessed by the draft model, one a round for all such sequences.
  bool by_model = false;
};

// The draft length of each candidate, at most the number of its chances: those with the most tokens
// expected a second,
//
//   (sequences + sum of the chances that a draft token is reached and right)
//   / (costs(sequences + draft tokens) + rounds * round_time)
//
// where rounds is the longest of the by_model ones. Tokens less likely than kMinReach are left
// out. All 0 unless that is at least kMinGain times what the step gives without drafts, and while
// the costs without drafts are not known, or not any more: such a step measures them. `sequences`
// >= 1: those that decode in the step, the candidates among them; `max_tokens`: of all drafts
// together. O(n log n) of all tokens n, times the rounds that there may be.
std::vector<int64_t> ChooseDraftLengths(std::span<const DraftCandidate> candidates,
                                        int64_t sequences, const StepCosts& costs,
                                        absl::Duration round_time, int64_t max_tokens);
inline constexpr double kMinGain = 1.05;
inline constexpr double kMinReach = 1.0 / 64;

}  // namespace tlm

#endif  // TLM_SERVER_SPECULATION_SPECULATION_POLICY_H_
