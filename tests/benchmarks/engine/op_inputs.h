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

// Rows and their memory.
struct OwnedRows {
  Buffer memory;
  Rows rows;

  // The first `count` rows of `cols` values, contiguous.
  Rows Part(int64_t count, int64_t cols) const;
};

// Rows of normal values of deviation 0.05; `dtype` kF32, kBF16 or kF16. Errors as Allocate's.
absl::StatusOr<OwnedRows> MakeRows(Ops& ops, int64_t rows, int64_t cols, DType dtype);

// A matrix stored as `weights`, which may be kI8, of the same values. Errors of PackMatrix.
absl::StatusOr<std::unique_ptr<Matrix>> MakeMatrix(Ops& ops, int64_t n, int64_t k, DType weights,
                                                   MatrixUse use);

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_ENGINE_OP_INPUTS_H_
