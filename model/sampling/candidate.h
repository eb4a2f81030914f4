// A token with its logit, and the set of tokens to sample from.
#ifndef TLM_MODEL_SAMPLING_CANDIDATE_H_
#define TLM_MODEL_SAMPLING_CANDIDATE_H_

#include <cstdint>
#include <limits>

namespace tlm {

struct Candidate {
  float logit;
  int32_t id;
};

// Orders by falling logit, equal ones by id.
inline bool MoreLikely(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// The tokens of a row that truncation leaves: a beginning of the order of MoreLikely. Those at
// -infinity are never among them.
struct Kept {
  Candidate last = {std::numeric_limits<float>::lowest(), std::numeric_limits<int32_t>::max()};
  // And their ScaledLogit is at least this.
  double least_scaled = -std::numeric_limits<double>::infinity();

  bool Has(const Candidate& candidate, double scaled) const {
    return !MoreLikely(last, candidate) && scaled >= least_scaled;
  }
};

}  // namespace tlm

#endif  // TLM_MODEL_SAMPLING_CANDIDATE_H_
