// Which of a library's algorithms to try, and for how many rows: plain functions.
#ifndef TLM_MODEL_OPS_CUDA_GEMM_CANDIDATES_H_
#define TLM_MODEL_OPS_CUDA_GEMM_CANDIDATES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace tlm {

// What cuBLASLt reports of an algorithm (cublasLtMatmulAlgoConfigAttributes_t).
struct GemmAlgorithm {
  int32_t id = 0;
  uint32_t stages = 0;
  int32_t split_k = 1;
  uint32_t reduction = 0;  // scheme; 0: none
  size_t workspace_bytes = 0;
};

// Whether the algorithm may sum each output in one chain: no split of k, no reduction of partial
// sums, no workspace to keep them in. The probe shows whether it does.
bool MaySumInOneChain(const GemmAlgorithm& algorithm);

// Indices of the algorithms worth trying, in the order to try them. On compute capability 9 the
// algorithms with ALGO_ID 66 and STAGES_ID 35 come first: in Meta's bitequiv measurements (H100,
// cuBLASLt 13.1.1) they sum forward over k with one fp32 accumulator for every tile size. This is a
// hint only: the probe decides. Otherwise the library's order, by estimated speed, stays.
std::vector<size_t> TrialOrder(std::span<const GemmAlgorithm> algorithms, int compute_major);

// Milliseconds that `once` takes: the median of at least 3 and at most 7 runs; none begins once
// those before have taken 4 ms together, so that a search takes little time whatever is timed.
// Errors of `once` end it.
absl::StatusOr<float> MedianTime(absl::FunctionRef<absl::StatusOr<float>()> once);

// Of algorithms 0 .. count - 1, tried in this order, the fastest of the first `most` that agree;
// nothing if none is faster than the own kernels. Fast is a small sum, over `rows`, of an
// algorithm's time divided by the own kernels' for as many rows: both ends of a bucket count alike.
// Times are asked only where an algorithm agrees. UNIMPLEMENTED of `time` rules that algorithm out;
// other errors end the search.
absl::StatusOr<std::optional<size_t>> ChooseFastest(
    size_t count, size_t most, absl::FunctionRef<absl::StatusOr<bool>(size_t)> agrees,
    std::span<const int64_t> rows, absl::FunctionRef<absl::StatusOr<float>(int64_t)> own_time,
    absl::FunctionRef<absl::StatusOr<float>(size_t, int64_t)> time);

// Row counts of (above, most] to probe an algorithm with, which may divide its work by rows: both
// ends, and an odd number between.
std::vector<int64_t> ProbedRows(int64_t above, int64_t most);

// Row counts of (above, most] to time one at: both ends.
std::vector<int64_t> TimedRows(int64_t above, int64_t most);

// The largest row count of each bucket that (min_rows, max_rows] is cut into: the powers of two
// above min_rows, and max_rows. 0 <= min_rows; empty when there are no rows.
std::vector<int64_t> RowBuckets(int64_t min_rows, int64_t max_rows);

// The index of the bucket that m rows are in; m <= the last bucket's rows.
size_t BucketOf(std::span<const int64_t> buckets, int64_t m);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_GEMM_CANDIDATES_H_
