#include "model/ops/cuda/gemm/gemm_candidates.h"

#include <algorithm>
#include <cstddef>

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

absl::StatusOr<float> MedianTime(absl::FunctionRef<absl::StatusOr<float>()> once) {
  constexpr size_t kMinRuns = 3;
  constexpr size_t kMaxRuns = 7;
  constexpr float kEnough = 4.0f;  // ms
  std::vector<float> times;
  float sum = 0.0f;
  while (times.size() < kMinRuns || (times.size() < kMaxRuns && sum < kEnough)) {
    TLM_ASSIGN_OR_RETURN(const float time, once());
    times.push_back(time);
    sum += time;
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

absl::StatusOr<std::optional<size_t>> ChooseFastest(
    size_t count, size_t most, absl::FunctionRef<absl::StatusOr<bool>(size_t)> agrees,
    std::span<const int64_t> rows, absl::FunctionRef<absl::StatusOr<float>(int64_t)> own_time,
    absl::FunctionRef<absl::StatusOr<float>(size_t, int64_t)> time) {
  constexpr float kMinTime = 1e-6f;  // ms: less than any product takes
  std::vector<float> own;            // by `rows`
  const auto relative_time = [&](size_t i) -> absl::StatusOr<float> {
    float sum = 0.0f;
    for (size_t row = 0; row < rows.size(); ++row) {
      TLM_ASSIGN_OR_RETURN(const float taken, time(i, rows[row]));
      sum += taken / own[row];
    }
    return sum;
  };
  std::optional<size_t> best;
  auto best_time = static_cast<float>(rows.size());  // the own kernels'
  size_t agreed = 0;
  for (size_t i = 0; i < count && agreed < most; ++i) {
    TLM_ASSIGN_OR_RETURN(const bool same, agrees(i));
    if (!same) continue;
    ++agreed;
    while (own.size() < rows.size()) {
      TLM_ASSIGN_OR_RETURN(const float taken, own_time(rows[own.size()]));
      own.push_back(std::max(taken, kMinTime));
    }
    const absl::StatusOr<float> taken = relative_time(i);
    if (absl::IsUnimplemented(taken.status())) continue;
    TLM_RETURN_IF_ERROR(taken.status());
    if (*taken >= best_time) continue;
    best = i;
    best_time = *taken;
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

std::vector<int64_t> TimedRows(int64_t above, int64_t most) {
  if (above + 1 == most) return {most};
  return {above + 1, most};
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
