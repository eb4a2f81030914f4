// The errors of sampling, with the same messages for every backend.
#ifndef TLM_MODEL_SAMPLING_SAMPLING_ERRORS_H_
#define TLM_MODEL_SAMPLING_SAMPLING_ERRORS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "model/base/errors.h"

namespace tlm {

// The error of a logit that is NaN or +infinity.
inline absl::Status NotADistribution(int64_t id, float logit) {
  return DataLoss("the logit of token {} is {}", id, logit);
}

inline absl::Status AllExcluded(int64_t vocab_size) {
  return DataLoss("all {} logits are -infinity", vocab_size);
}

// The job may be run again: nothing was sampled.
inline absl::Status MaskIsLate() {
  return Unavailable("which tokens may be sampled is not known in time");
}

// The numbers of ids that left no token to sample.
struct RemovalCounts {
  size_t allowed = 0;
  size_t banned = 0;
  size_t ending = 0;
  bool masked = false;
};

inline absl::Status NoneLeft(const RemovalCounts& ids) {
  return InvalidArgument(
      "no token can be sampled: the model excludes all that {} allowed, {} banned and {} ending "
      "ids (kept back by min_new_tokens){} leave",
      ids.allowed, ids.banned, ids.ending, ids.masked ? " and the constraint" : "");
}

}  // namespace tlm

#endif  // TLM_MODEL_SAMPLING_SAMPLING_ERRORS_H_
