#include "model/ops/cuda/gemm_candidates.h"

#include <algorithm>
#include <limits>

#include "model/base/errors.h"

namespace tlm {

bool MaySumInOneChain(const GemmAlgorithm& algorithm) {
  return algorithm.split_k <= 1 && algorithm.reduction == 0 && algorithm.workspace_bytes == 0;
}

std::vector<size_t> TrialOrder(std::span<const GemmAlgorithm> algorithms, int compute_major) {
  constexpr int32_t kForwardId = 66;
  constexpr uint32_t kForwardStages = 35;
  std::vector<size_t> order;
  for (size_t i = 0; i < algorithms.size(); ++i) {
    if (MaySumInOneChain(algorithms[i])) order.push_back(i);
  }
  if (compute_major != 9) return order;
  std::stable_partition(order.begin(), order.end(), [&](size_t i) {
    return algorithms[i].id == kForwardId && algorithms[i].stages == kForwardStages;
  });
  return order;
}

absl::StatusOr<std::optional<size_t>> ChooseFastest(
    size_t count, size_t most, absl::FunctionRef<absl::StatusOr<bool>(size_t)> agrees,
    absl::FunctionRef<absl::StatusOr<float>(size_t)> time) {
  std::optional<size_t> best;
  float best_time = std::numeric_limits<float>::infinity();
  size_t agreed = 0;
  for (size_t i = 0; i < count && agreed < most; ++i) {
    TLM_ASSIGN_OR_RETURN(const bool same, agrees(i));
    if (!same) continue;
    ++agreed;
    TLM_ASSIGN_OR_RETURN(const float taken, time(i));
    if (best.has_value() && taken >= best_time) continue;
    best = i;
    best_time = taken;
  }
  return best;
}

std::vector<int64_t> ProbedRows(int64_t above, int64_t most) {
  std::vector<int64_t> rows = {most};
  if (above + 1 < most) rows.push_back(above + 1);
  const int64_t odd = (above + most) / 2 | 1;
  if (odd > above + 1 && odd < most) rows.push_back(odd);
  return rows;
}

std::vector<int64_t> RowBuckets(int64_t min_rows, int64_t max_rows) {
  std::vector<int64_t> buckets;
  if (max_rows <= min_rows) return buckets;
  int64_t rows = 1;
  while (rows <= min_rows) rows *= 2;
  for (; rows < max_rows; rows *= 2) buckets.push_back(rows);
  buckets.push_back(max_rows);
  return buckets;
}

size_t BucketOf(std::span<const int64_t> buckets, int64_t m) {
  return static_cast<size_t>(std::lower_bound(buckets.begin(), buckets.end(), m) - buckets.begin());
}

}  // namespace tlm
