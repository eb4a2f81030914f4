#include "server/speculation/speculation_policy.h"

namespace tlm {

void StepCosts::Record(int64_t, absl::Duration) {}

absl::Duration StepCosts::Estimate(int64_t) const { return absl::ZeroDuration(); }

void DraftCosts::Record(int64_t behind, int64_t rounds, absl::Duration elapsed) {
  const auto follow = [](absl::Duration& estimate, absl::Duration measured) {
    estimate = estimate == absl::ZeroDuration() ? measured : estimate + (measured - estimate) * 0.2;
  };
  if (behind > 2 * rounds) {
    const absl::Duration rest = elapsed - rounds * round_;
    follow(token_, std::max(rest, elapsed / 2) / behind);
  } else if (rounds > 0) {
    follow(round_, elapsed / rounds);
  }
}

bool DraftCosts::TakeTrial(int64_t behind, int64_t rounds) {
  const absl::Duration cost = CatchUp(behind) + rounds * round_;
  if (cost > credit_) return false;
  credit_ -= cost;
  return true;
}

std::vector<int64_t> ChooseDraftLengths(std::span<const DraftCandidate> candidates, int64_t,
                                        const StepCosts&, absl::Duration, int64_t) {
  return std::vector<int64_t>(candidates.size(), 0);
}

}  // namespace tlm
