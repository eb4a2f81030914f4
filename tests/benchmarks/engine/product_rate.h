// The speed of the backend's matrix products of many rows.
#ifndef TLM_TESTS_BENCHMARKS_ENGINE_PRODUCT_RATE_H_
#define TLM_TESTS_BENCHMARKS_ENGINE_PRODUCT_RATE_H_

#include <string>

#include "absl/status/statusor.h"
#include "tests/benchmarks/engine/bench_model.h"

namespace tlm::bench {

struct ProductRate {
  std::string name;  // "products of 512 x 1024 with 1024 x 6144"
  double flops_per_second = 0;
};

// The rate of the model's widest matrix product with up to 512 rows, repeated with one matrix: an
// upper bound for prefill. Takes some tenths of a second; errors of PackMatrix.
absl::StatusOr<ProductRate> MeasureProducts(BenchModel& loaded);

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_ENGINE_PRODUCT_RATE_H_
