// Chooses which of a library's algorithms to try, and for which row counts. Plain functions.
#ifndef TLM_MODEL_OPS_CUDA_GEMM_GEMM_CANDIDATES_H_
#define TLM_MODEL_OPS_CUDA_GEMM_GEMM_CANDIDATES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace tlm {

// Properties that cuBLASLt reports of an algorithm (cublasLtMatmulAlgoConfigAttributes_t).
struct GemmAlgorithm {
  int32_t id = 0;
  uint32_t stages = 0;
  int32_t split_k = 1;
  uint32_t reduction = 0;  // scheme; 0: no reduction
  size_t workspace_bytes = 0;
};

// Whether the algorithm may sum each output in one chain: it reports no split-K, no reduction of
// partial sums, and no workspace for them. The probe shows whether it does.
bool MaySumInOneChain(const GemmAlgorithm& algorithm);

// Indices of the algorithms worth trying, in the order to try them. On compute capability 9 the
// algorithms with ALGO_ID 66 and STAGES_ID 35 come first: in Meta's bitequiv measurements (H100,
// cuBLASLt 13.1.1) they sum forward over k with one fp32 accumulator for every tile size. This is a
// hint only; the probe decides. The others keep the library's order, by estimated speed.
std::vector<size_t> TrialOrder(std::span<const GemmAlgorithm> algorithms, int compute_major);

// Milliseconds that `once` takes: the median of at least 3 and at most 7 runs. No run begins after
// the previous ones have taken 4 ms together, which bounds the time of a search. Errors of `once`
// end it.
absl::StatusOr<float> MedianTime(absl::FunctionRef<absl::StatusOr<float>()> once);

// Tries algorithms 0 .. count - 1 in this order and returns the fastest of the first `most` that
// agree, or nullopt if none is faster than the own kernels. The measure is the sum, over `rows`, of
// the algorithm's time divided by the own kernels' time for as many rows, so both ends of a bucket
// count alike. Times are measured only for algorithms that agree. UNIMPLEMENTED from `time` rules
// out that algorithm; other errors end the search.
absl::StatusOr<std::optional<size_t>> ChooseFastest(
    size_t count, size_t most, absl::FunctionRef<absl::StatusOr<bool>(size_t)> agrees,
    std::span<const int64_t> rows, absl::FunctionRef<absl::StatusOr<float>(int64_t)> own_time,
    absl::FunctionRef<absl::StatusOr<float>(size_t, int64_t)> time);

// The row counts of (above, most] to compare bits at: both ends, and an odd number between, because
// an algorithm may divide its work by rows.
std::vector<int64_t> ProbedRows(int64_t above, int64_t most);

// The row counts of (above, most] to measure times at: both ends.
std::vector<int64_t> TimedRows(int64_t above, int64_t most);

// The largest row count of each bucket of (min_rows, max_rows]: the powers of two above min_rows,
// and max_rows. 0 <= min_rows. Empty if there are no rows.
std::vector<int64_t> RowBuckets(int64_t min_rows, int64_t max_rows);

// The index of the bucket that m rows belong to; m <= the last bucket's rows.
size_t BucketOf(std::span<const int64_t> buckets, int64_t m);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_GEMM_GEMM_CANDIDATES_H_
