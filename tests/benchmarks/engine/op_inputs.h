// Random arguments of operations, in a backend's memory.
#ifndef TLM_TESTS_BENCHMARKS_ENGINE_OP_INPUTS_H_
#define TLM_TESTS_BENCHMARKS_ENGINE_OP_INPUTS_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "model/ops/ops.h"
#include "model/tensor/buffer.h"
#include "model/tensor/dtype.h"

namespace tlm::bench {

// Rows of activations as a model lays them out, and their memory.
struct OwnedRows {
  const Ops* ops = nullptr;  // outlives them
  Buffer memory;
  Rows rows;

  // The first `count` rows, as rows of `cols` values, at most rows.cols, are laid out.
  Rows Part(int64_t count, int64_t cols) const;
};

// Normal values of deviation 0.05, and rows of them; `dtype` kF32, kBF16 or kF16. Or bytes that are
// elements and scales of kF8E4M3 alike. Errors as Allocate's.
absl::StatusOr<Buffer> MakeValues(Ops& ops, int64_t count, DType dtype);
absl::StatusOr<OwnedRows> MakeRows(Ops& ops, int64_t rows, int64_t cols, DType dtype);

// A matrix of the same values, given as `dtype` and stored in `format`, which is not kInt4. Errors
// of PackMatrix.
absl::StatusOr<std::unique_ptr<Matrix>> MakeMatrix(Ops& ops, int64_t n, int64_t k, DType dtype,
                                                   MatrixUse use,
                                                   WeightFormat format = WeightFormat::kAsGiven);

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_ENGINE_OP_INPUTS_H_
