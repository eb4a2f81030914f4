// How many tokens are worth guessing: pure policy without model, thread or clock.
#ifndef TLM_SERVER_SPECULATION_SPECULATION_POLICY_H_
#define TLM_SERVER_SPECULATION_SPECULATION_POLICY_H_

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/time/time.h"

namespace tlm {

// The time of a step that decodes, by the number of its tokens: those of every sequence and of
// every draft. Measured all the time; old measurements fade. What lies between measured numbers is
// interpolated, what lies behind them is taken to cost as much more a token as a prompt's do, until
// it was tried. Not thread-safe.
class StepCosts {
 public:
  // A step of `tokens` >= 1 tokens took so long. Steps with prompts are not recorded.
  void Record(int64_t tokens, absl::Duration elapsed);
  // The estimate; rises with `tokens`. Zero while nothing was measured.
  absl::Duration Estimate(int64_t tokens) const;
};

// What it costs to ask a DraftSource, and what may be spent on asking where it does not pay: a
// guess that is never made tells nothing. Not thread-safe.
class DraftCosts {
 public:
  // A call computed `behind` tokens that were missing, then guessed in `rounds` rounds.
  void Record(int64_t behind, int64_t rounds, absl::Duration elapsed);
  // Of one round. Zero while nothing was measured.
  absl::Duration Round() const { return round_; }
  absl::Duration CatchUp(int64_t behind) const { return behind * token_; }
  // A step has taken so long: kTrialShare of that may be spent on trials.
  void AddStep(absl::Duration elapsed) {
    credit_ = std::min(credit_ + elapsed * kTrialShare, kMostCredit);
  }
  // Whether there is credit for a trial of that length; then it is spent.
  bool TakeTrial(int64_t behind, int64_t rounds);
  static constexpr double kTrialShare = 0.01;
  // Of credit: longer pauses do not count.
  static constexpr absl::Duration kMostCredit = absl::Milliseconds(200);

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
// where rounds is the longest of the by_model ones. All 0 unless that is at least kLeastGain times
// what the step gives without drafts, or while the costs are not known. `sequences` >= 1: those
// that decode in the step, the candidates among them; `max_tokens`: of all drafts together.
std::vector<int64_t> ChooseDraftLengths(std::span<const DraftCandidate> candidates,
                                        int64_t sequences, const StepCosts& costs,
                                        absl::Duration round_time, int64_t max_tokens);
inline constexpr double kLeastGain = 1.05;

}  // namespace tlm

#endif  // TLM_SERVER_SPECULATION_SPECULATION_POLICY_H_
