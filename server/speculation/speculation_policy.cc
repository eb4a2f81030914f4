#include "server/speculation/speculation_policy.h"

namespace tlm {

void StepCosts::Record(int64_t, absl::Duration) {}

absl::Duration StepCosts::Estimate(int64_t) const { return absl::ZeroDuration(); }

std::vector<int64_t> ChooseDraftLengths(std::span<const DraftCandidate> candidates, int64_t,
                                        const StepCosts&, absl::Duration, int64_t) {
  return std::vector<int64_t>(candidates.size(), 0);
}

}  // namespace tlm
