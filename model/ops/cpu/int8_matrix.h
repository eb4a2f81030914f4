// A weight matrix of 8-bit elements, quantised as it is packed.
#ifndef TLM_MODEL_OPS_CPU_INT8_MATRIX_H_
#define TLM_MODEL_OPS_CPU_INT8_MATRIX_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "model/ops/cpu/cpu_matrix.h"
#include "model/ops/cpu/kernels/kernels.h"
#include "model/ops/cpu/matrix_parts.h"
#include "model/ops/cpu/thread_pool.h"
#include "model/ops/device.h"
#include "model/tensor/buffer.h"

namespace tlm {

// [n, k] as panels of 16 output features; kernels/int8.h says how one lies and what is lost: every
// weight is off by at most half a scale, 1/254 of the largest of its group.
class Int8Matrix : public CpuMatrix {
 public:
  // INVALID_ARGUMENT for a value that is not finite; RESOURCE_EXHAUSTED as Allocate.
  static absl::StatusOr<std::unique_ptr<Int8Matrix>> Pack(const MatrixParts& parts, MatrixUse use,
                                                          const Kernels& kernels, Device& device,
                                                          ThreadPool& pool);

  int64_t n() const override { return n_; }
  int64_t k() const override { return k_; }
  DType dtype() const override { return DType::kI8; }
  size_t bytes() const override { return data_.bytes(); }
  void CopyRow(int64_t row, float* out) const override;
  void AddRow(int64_t row, float* to) const override;

  const void* data() const { return data_.data(); }
  int64_t panels() const { return panels_; }
  bool gated() const { return use_ == MatrixUse::kGated; }

 private:
  Int8Matrix(const MatrixParts& parts, MatrixUse use, Buffer data)
      : n_(parts.n()), k_(parts.k()), use_(use), panels_(parts.panels()), data_(std::move(data)) {}
  // Calls take(i, weight i) for every input.
  template <typename Take>
  void ForEachWeight(int64_t row, const Take& take) const;

  const int64_t n_;
  const int64_t k_;
  const MatrixUse use_;
  const int64_t panels_;
  const Buffer data_;
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_INT8_MATRIX_H_
