// How a weight matrix lies in device memory: pure arithmetic.
#ifndef TLM_MODEL_OPS_CUDA_MATRIX_LAYOUT_H_
#define TLM_MODEL_OPS_CUDA_MATRIX_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "model/ops/ops.h"
#include "model/tensor/dtype.h"

namespace tlm {

// Rows of the gate and of the up projection that stand together in a gated matrix.
inline constexpr int64_t kGateGroupRows = 16;

// n rows of row_stride elements, the k weights of an output consecutive and what follows them in
// the row zero. Row r of a plain matrix is output r. The rows of a gated one, n / 2 = h outputs of
// each half, are
//
//   gate 0..15, up 0..15, gate 16..31, up 16..31, ...
//
// so that one block of a kernel meets a gate with its up projection; the last group has only the
// h % 16 rows of each half that are left. A value type.
class MatrixLayout {
 public:
  // n >= 0, even if gated; k >= 0; dtype kBF16, kF16 or kF32.
  MatrixLayout(int64_t n, int64_t k, DType dtype, MatrixUse use);

  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  DType dtype() const { return dtype_; }
  bool gated() const { return use_ == MatrixUse::kGated; }
  // Elements from one row to the next: rows begin at multiples of 16 bytes.
  int64_t row_stride() const { return row_stride_; }
  // Of all rows. Sizes that a size_t does not hold become the largest one, which no allocation
  // grants.
  size_t bytes() const { return bytes_; }

  // The output, counted as Ops::PackMatrix stacks them, that stored row `row` in [0, n) holds.
  int64_t OutputOfRow(int64_t row) const;
  // The inverse.
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

#endif  // TLM_MODEL_OPS_CUDA_MATRIX_LAYOUT_H_
