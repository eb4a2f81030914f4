// A weight matrix in the order the CPU kernels read it.
#ifndef TLM_MODEL_OPS_CPU_PACKED_MATRIX_H_
#define TLM_MODEL_OPS_CPU_PACKED_MATRIX_H_

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "model/ops/cpu/kernels.h"
#include "model/ops/cpu/thread_pool.h"
#include "model/ops/device.h"
#include "model/ops/ops.h"
#include "model/tensor/buffer.h"
#include "model/tensor/tensor_view.h"

namespace tlm {

// [n, k] stored as [ceil(n / 16)][k][16]: a cache line (16-bit: half of one) holds 16 output
// features of one input feature. Features past n are zero.
class PackedMatrix : public Matrix {
 public:
  // Parts are stacked along n and stored as the widest of their types, F64 as F32.
  static absl::StatusOr<std::unique_ptr<PackedMatrix>> Pack(std::span<const TensorView> parts,
                                                            MatrixOrder order, Device& device,
                                                            ThreadPool& pool);

  int64_t n() const override { return n_; }
  int64_t k() const override { return k_; }
  DType dtype() const override { return dtype_; }
  size_t bytes() const override { return data_.bytes(); }

  Storage storage() const;
  const void* data() const { return data_.data(); }
  int64_t panels() const { return (n_ + kPanel - 1) / kPanel; }
  // Row `row` as float32, k values.
  void CopyRow(int64_t row, float* out) const;
  // Adds it to `to`.
  void AddRow(int64_t row, float* to) const;

 private:
  PackedMatrix(int64_t n, int64_t k, DType dtype, Buffer data);

  const int64_t n_;
  const int64_t k_;
  const DType dtype_;
  const Buffer data_;
};

// How kernels see elements of `dtype`, one of F32, BF16, F16.
Storage StorageOf(DType dtype);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_PACKED_MATRIX_H_
