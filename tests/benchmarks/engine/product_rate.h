// The backend's own products of many rows.
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

// The rate of the model's widest products at 512 rows, or as many as its steps have, one matrix
// again and again: what prompts could reach if products were all there is. Takes some tenths of a
// second; errors as PackMatrix's.
absl::StatusOr<ProductRate> MeasureProducts(BenchModel& loaded);

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_ENGINE_PRODUCT_RATE_H_
