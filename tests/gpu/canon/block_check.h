// Whether products with a matrix in blocks have the bits of those with its elements rounded to
// bfloat16, at every number of rows: with the blocks as they are, dequantised to a panel, and by a
// library.
#ifndef TLM_TESTS_GPU_CANON_BLOCK_CHECK_H_
#define TLM_TESTS_GPU_CANON_BLOCK_CHECK_H_

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "model/ops/cuda/cuda_ops.h"
#include "model/tensor/dtype.h"

namespace tlm {

struct BlockShape {
  std::string name;
  int64_t n = 0;  // rows of the weight matrix, both halves of a gated one
  int64_t k = 0;  // blocks of `type` divide it
  DType type = DType::kI8G256;
  bool gated = false;
};

struct BlockCheck {
  int64_t runs = 0;
  int64_t different_runs = 0;
  int64_t different_elements = 0;
  std::string first;  // difference; empty if there is none
};

// Multiplies as many random rows as each of `row_counts` (ascending) says with both matrices, which
// `ops` has reserved memory for, and compares all outputs.
absl::StatusOr<BlockCheck> CompareProducts(CudaOps& ops, const Matrix& w, const Matrix& other,
                                           bool gated, std::span<const int64_t> row_counts);

// The same of a matrix of random blocks and of its elements. `ops` has no model yet.
// RESOURCE_EXHAUSTED: the largest batch does not fit the device.
absl::StatusOr<BlockCheck> CheckBlocks(CudaOps& ops, const BlockShape& shape,
                                       std::span<const int64_t> row_counts);

}  // namespace tlm

#endif  // TLM_TESTS_GPU_CANON_BLOCK_CHECK_H_
