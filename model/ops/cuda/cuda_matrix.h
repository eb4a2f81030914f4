// A weight matrix in device memory.
#ifndef TLM_MODEL_OPS_CUDA_CUDA_MATRIX_H_
#define TLM_MODEL_OPS_CUDA_CUDA_MATRIX_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "model/ops/cuda/matrix_layout.h"
#include "model/ops/ops.h"
#include "model/tensor/buffer.h"

namespace tlm {

class CudaMatrix : public Matrix {
 public:
  // `data`: layout.bytes() of device memory, 16-byte aligned.
  CudaMatrix(const MatrixLayout& layout, Buffer data) : layout_(layout), data_(std::move(data)) {}

  int64_t n() const override { return layout_.n(); }
  int64_t k() const override { return layout_.k(); }
  DType dtype() const override { return layout_.dtype(); }
  size_t bytes() const override { return data_.bytes(); }

  const MatrixLayout& layout() const { return layout_; }
  // Device memory, rows as layout() says.
  const void* data() const { return data_.data(); }

 private:
  const MatrixLayout layout_;
  const Buffer data_;
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_CUDA_MATRIX_H_
