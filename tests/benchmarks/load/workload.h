// The requests of a run, sampled from a seed.
#ifndef TLM_TESTS_BENCHMARKS_LOAD_WORKLOAD_H_
#define TLM_TESTS_BENCHMARKS_LOAD_WORKLOAD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/load/generate_call.h"
#include "tests/benchmarks/load/mixture.h"
#include "tlm/v1/generate.pb.h"
#include "tlm/v1/model_info.pb.h"

namespace tlm::bench {

struct WorkloadOptions {
  Mixture prompt_tokens;
  Mixture output_tokens;  // exact: end-of-sequence tokens are ignored
  // The requests of a group share this part of their prompts as a prefix.
  double shared_prefix = 0;
  int64_t prefix_groups = 1;
  Mixture deadline;  // of the call
  Mixture priority;
  float temperature = 1;         // 0: greedy
  bool text = false;             // ask for text besides token ids
  std::string json_schema = {};  // of the outputs, in compact JSON; empty: they are free
  uint64_t seed = 0;
};

// Immutable.
class Workload {
 public:
  // INVALID_ARGUMENT for lengths beyond the model's context and for values out of range.
  static absl::StatusOr<Workload> Create(const WorkloadOptions& options,
                                         const v1::ModelInfoResponse& model);

  // Request number `index` of a run. Other runs have other prompts: a prefix cache hits the shared
  // prefixes only. A pure function of the seed, `run` and `index`.
  load::PlannedRequest Make(uint64_t run, uint64_t index) const;

  const WorkloadOptions& options() const { return options_; }

 private:
  Workload(const WorkloadOptions& options, uint32_t vocab_size);

  WorkloadOptions options_;
  uint32_t vocab_size_;
  std::vector<std::vector<uint32_t>> prefixes_;  // one a group, as long as the longest
};

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_LOAD_WORKLOAD_H_
