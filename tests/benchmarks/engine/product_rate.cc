#include "tests/benchmarks/engine/product_rate.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "model/base/errors.h"
#include "tests/benchmarks/engine/op_inputs.h"
#include "tests/benchmarks/engine/statistics.h"

namespace tlm::bench {

absl::StatusOr<ProductRate> MeasureProducts(BenchModel& loaded) {
  constexpr double kSeconds = 0.3;
  constexpr size_t kLeastRuns = 5;
  Ops& ops = *loaded.backend.ops;
  const int64_t rows = std::min<int64_t>(512, loaded.model->limits().max_tokens);
  const int64_t k = loaded.config.d_model;
  const int64_t n = (loaded.config.gated_ffn() ? 2 : 1) * loaded.config.d_ff;
  const DType activations = ops.ActivationType(loaded.weights_dtype);
  TLM_ASSIGN_OR_RETURN(const auto matrix,
                       MakeMatrix(ops, n, k, loaded.weights_dtype, MatrixUse::kPlain));
  TLM_ASSIGN_OR_RETURN(const OwnedRows x, MakeRows(ops, rows, k, activations));
  TLM_ASSIGN_OR_RETURN(const OwnedRows out, MakeRows(ops, rows, n, activations));
  std::vector<double> seconds;
  double total = 0;
  while (seconds.size() < kLeastRuns || total < kSeconds) {
    const absl::Time begin = absl::Now();
    TLM_RETURN_IF_ERROR(ops.MatMul(x.rows, *matrix, {}, out.rows));
    TLM_RETURN_IF_ERROR(ops.device().Synchronize());
    seconds.push_back(absl::ToDoubleSeconds(absl::Now() - begin));
    total += seconds.back();
  }
  return ProductRate{.name = fmt::format("products of {} x {} with {} x {}", rows, k, k, n),
                     .flops_per_second = 2.0 * static_cast<double>(rows * n) *
                                         static_cast<double>(k) / Median(seconds)};
}

}  // namespace tlm::bench
