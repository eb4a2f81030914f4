// A weight matrix in device memory.
#ifndef TLM_MODEL_OPS_CUDA_WEIGHTS_CUDA_MATRIX_H_
#define TLM_MODEL_OPS_CUDA_WEIGHTS_CUDA_MATRIX_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "model/ops/cuda/kernels/gemm/block_format.h"
#include "model/ops/cuda/weights/block_layout.h"
#include "model/ops/cuda/weights/matrix_layout.h"
#include "model/ops/ops.h"
#include "model/tensor/buffer.h"

namespace tlm {

class CudaMatrix : public Matrix {
 public:
  // Consecutive stored rows of a matrix in blocks.
  struct Segment {
    BlockLayout layout;
    int64_t first_row = 0;
    Buffer data = {};         // layout.bytes(), 16-byte aligned
    Buffer input_order = {};  // int32 [k]; empty: in order
  };

  // `data`: layout.bytes() of device memory, 16-byte aligned.
  CudaMatrix(const MatrixLayout& layout, Buffer data) : layout_(layout), data_(std::move(data)) {}
  // A matrix in blocks. `layout` is the layout of the dequantised matrix, bfloat16.
  CudaMatrix(const MatrixLayout& layout, std::vector<Segment> segments)
      : layout_(layout), segments_(std::move(segments)) {}

  int64_t n() const override { return layout_.n(); }
  int64_t k() const override { return layout_.k(); }
  DType dtype() const override { return in_blocks() ? DType::kI8 : layout_.dtype(); }
  size_t bytes() const override;
  std::map<DType, uint64_t> BytesByType() const override;

  const MatrixLayout& layout() const { return layout_; }
  // Device memory with rows as in layout(). Only for matrices not in blocks.
  const void* data() const { return data_.data(); }
  bool in_blocks() const { return !segments_.empty(); }
  // Ordered by first_row, without gaps.
  std::span<const Segment> segments() const { return segments_; }

 private:
  const MatrixLayout layout_;
  const Buffer data_;
  const std::vector<Segment> segments_;
};

inline BlockMatrixArgs ArgsOf(const CudaMatrix::Segment& segment) {
  return {.data = segment.data.as<unsigned char>(),
          .strip_bytes = static_cast<int64_t>(segment.layout.strip_bytes()),
          .format = segment.layout.format(),
          .spans = static_cast<int32_t>(segment.layout.spans()),
          .k = static_cast<int32_t>(segment.layout.k()),
          .input_order = segment.input_order.as<int32_t>()};
}

inline std::map<DType, uint64_t> CudaMatrix::BytesByType() const {
  if (!in_blocks()) return {{dtype(), bytes()}};
  std::map<DType, uint64_t> bytes;
  for (const Segment& segment : segments_) {
    bytes[segment.layout.type()] += segment.data.bytes() + segment.input_order.bytes();
  }
  return bytes;
}

inline size_t CudaMatrix::bytes() const {
  size_t bytes = data_.bytes();
  for (const Segment& segment : segments_)
    bytes += segment.data.bytes() + segment.input_order.bytes();
  return bytes;
}

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_WEIGHTS_CUDA_MATRIX_H_
