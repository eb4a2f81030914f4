// A weight matrix in the order in which the CPU kernels read it.
#ifndef TLM_MODEL_OPS_CPU_PACKED_MATRIX_H_
#define TLM_MODEL_OPS_CPU_PACKED_MATRIX_H_

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "model/ops/cpu/cpu_matrix.h"
#include "model/ops/cpu/kernels/kernels.h"
#include "model/ops/cpu/thread_pool.h"
#include "model/ops/device.h"
#include "model/ops/ops.h"
#include "model/tensor/buffer.h"
#include "model/tensor/tensor_view.h"

namespace tlm {

// [n, k] as panels of 16 output features; kernels/matmul.h describes a panel's layout. Features
// past n are zero.
class PackedMatrix : public CpuMatrix {
 public:
  // Stacks the parts along n and stores them as the widest of their types, F64 as F32. Otherwise
  // like Ops::PackMatrix.
  static absl::StatusOr<std::unique_ptr<PackedMatrix>> Pack(std::span<const TensorView> parts,
                                                            MatrixOrder order, MatrixUse use,
                                                            Device& device, ThreadPool& pool);

  Kind kind() const override { return Kind::kPacked; }
  int64_t n() const override { return n_; }
  int64_t k() const override { return k_; }
  DType dtype() const override { return dtype_; }
  size_t bytes() const override { return data_.bytes(); }

  Storage storage() const;
  const void* data() const { return data_.data(); }
  int64_t panels() const { return panels_; }
  bool gated() const { return use_ == MatrixUse::kGated; }
  void CopyRow(int64_t row, float* out) const override;
  void AddRow(int64_t row, float* to) const override;

 private:
  PackedMatrix(int64_t n, int64_t k, DType dtype, MatrixUse use, int64_t panels, Buffer data);
  // Calls visit(i, value) for every input of a row.
  template <typename Visit>
  void ForEachOf(int64_t row, const Visit& visit) const;

  const int64_t n_;
  const int64_t k_;
  const DType dtype_;
  const MatrixUse use_;
  const int64_t panels_;
  const Buffer data_;
};

// Returns the kernels' name for `dtype`, one of F32, BF16, F16.
Storage StorageOf(DType dtype);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_PACKED_MATRIX_H_
