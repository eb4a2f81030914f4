// Converts matrices in blocks from the host's format to the strips of device memory. Plain C++.
#ifndef TLM_MODEL_OPS_CUDA_WEIGHTS_BLOCK_LAYOUT_H_
#define TLM_MODEL_OPS_CUDA_WEIGHTS_BLOCK_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "model/ops/cuda/kernels/gemm/block_format.h"
#include "model/ops/cuda/weights/weight_rows.h"
#include "model/ops/ops.h"
#include "model/tensor/blocks.h"
#include "model/tensor/dtype.h"
#include "model/tensor/tensor_view.h"

namespace tlm {

// The layout of n rows of k weights in blocks of one type in device memory; block_format.h
// describes a strip. A value type.
//
// Bits per weight, if n and k are whole strips and cells: as in the type itself, but 1/8 more for
// Q4_K and Q5_K, whose 6-bit factors take 8 bits here.
class BlockLayout {
 public:
  // n, k >= 0; IsBlockQuantised(type).
  BlockLayout(int64_t n, int64_t k, DType type);

  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  DType type() const { return type_; }
  const StripFormat& format() const { return format_; }
  int64_t spans() const { return spans_; }  // spans of 128 inputs in each row
  int64_t strips() const { return (n_ + kStripRows - 1) / kStripRows; }
  size_t strip_bytes() const { return strip_bytes_; }
  // Bytes of all rows. Sizes that a size_t cannot hold become the largest one.
  size_t bytes() const;

  // Writes one block, inputs [first, first + its length), of row `row` of a strip; of the last
  // block only the inputs that exist. `strip` must be all zeros before the first block.
  void Write(const BlockValues& values, int row, int64_t first, std::byte* strip) const;

 private:
  int64_t n_;
  int64_t k_;
  DType type_;
  StripFormat format_;
  int64_t spans_;
  size_t strip_bytes_;
};

// Host matrices stacked along the outputs (Ops::PackMatrix), read as blocks of one type.
// Non-owning; const methods may be called from several threads.
class BlockRows {
 public:
  // The parts have rank 2 and the same k. Either all are in blocks of `type`, kOutputsFirst and
  // with the same input_order; or all are floats, which are quantised with `importance` [k] (empty:
  // all inputs matter alike).
  BlockRows(std::span<const TensorView> parts, MatrixOrder order, DType type,
            std::span<const float> importance = {});

  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  DType type() const { return type_; }

  // Writes a whole strip of `layout`: row i has the weights of outputs[i], or zeros if that is -1.
  // INVALID_ARGUMENT: a weight is not finite, or might not be finite in bfloat16.
  absl::Status ReadStrip(std::span<const int64_t> outputs, const BlockLayout& layout,
                         std::byte* strip) const;

 private:
  // The first block of an output; for parts in blocks.
  const std::byte* Find(int64_t output) const;
  absl::Status Quantise(std::span<const int64_t> outputs, const BlockLayout& layout,
                        std::byte* strip) const;
  absl::Status NotFinite() const;

  const std::vector<TensorView> parts_;
  const DType type_;
  const std::span<const float> importance_;
  std::optional<WeightRows> floats_;  // to be quantised
  int64_t n_ = 0;
  int64_t k_ = 0;
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_WEIGHTS_BLOCK_LAYOUT_H_
