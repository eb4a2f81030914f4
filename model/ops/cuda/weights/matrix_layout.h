// The layout of a weight matrix in device memory. Plain C++, no CUDA.
#ifndef TLM_MODEL_OPS_CUDA_WEIGHTS_MATRIX_LAYOUT_H_
#define TLM_MODEL_OPS_CUDA_WEIGHTS_MATRIX_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "model/ops/ops.h"
#include "model/tensor/dtype.h"

namespace tlm {

// Consecutive rows of the gate, and of the up projection, in a gated matrix.
inline constexpr int64_t kGateGroupRows = 16;

// n rows of row_stride elements: the k weights of one output, then zeros. Row r of a plain matrix
// is output r. In a gated matrix, with h = n / 2 outputs in each half, the rows are
//
//   gate 0..15, up 0..15, gate 16..31, up 16..31, ...
//
// so that one thread block computes a gate together with its up projection. The last group has only
// the h % 16 remaining rows of each half. A value type.
class MatrixLayout {
 public:
  // n >= 0, even if gated; k >= 0; dtype kBF16, kF16 or kF32.
  MatrixLayout(int64_t n, int64_t k, DType dtype, MatrixUse use);

  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  DType dtype() const { return dtype_; }
  bool gated() const { return use_ == MatrixUse::kGated; }
  // Elements from one row to the next. Rows begin at multiples of 16 bytes.
  int64_t row_stride() const { return row_stride_; }
  // Bytes of all rows. Sizes that a size_t cannot hold become the largest one, which no allocation
  // grants.
  size_t bytes() const { return bytes_; }

  // The output, numbered as Ops::PackMatrix stacks them, in stored row `row` of [0, n).
  int64_t OutputOfRow(int64_t row) const;
  // The inverse of OutputOfRow.
  int64_t RowOfOutput(int64_t output) const;

 private:
  int64_t n_;
  int64_t k_;
  DType dtype_;
  MatrixUse use_;
  int64_t row_stride_;
  size_t bytes_;
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_WEIGHTS_MATRIX_LAYOUT_H_
