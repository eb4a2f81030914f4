// A view of host matrices stacked along their outputs, for packing.
#ifndef TLM_MODEL_OPS_CPU_MATRIX_PARTS_H_
#define TLM_MODEL_OPS_CPU_MATRIX_PARTS_H_

#include <cstdint>
#include <span>

#include "model/base/errors.h"
#include "model/ops/cpu/kernels/matmul.h"
#include "model/ops/ops.h"
#include "model/tensor/tensor_view.h"

namespace tlm {

// The location of one output's weights.
struct OutputWeights {
  const char* data = nullptr;  // the first input's weight; null: there is no such output
  DType dtype = DType::kF32;
  int64_t stride = 1;  // elements from one input to the next; 1 in blocks
};

// Does not own the parts.
class MatrixParts {
 public:
  // At least one part; all have the same k, and float types or blocks. Parts in blocks are
  // kOutputsFirst.
  MatrixParts(std::span<const TensorView> parts, MatrixOrder order, MatrixUse use)
      : parts_(parts), order_(order), use_(use), k_(InputsOf(parts.front())) {
    for (const TensorView& part : parts) {
      TLM_CHECK(part.shape.rank() == 2 && InputsOf(part) == k_);
      TLM_CHECK(IsFloat(part.dtype) ||
                (IsBlockQuantised(part.dtype) && order == MatrixOrder::kOutputsFirst));
      n_ += OutputsOf(part);
    }
    TLM_CHECK(use == MatrixUse::kPlain || n_ % 2 == 0);
  }

  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  int64_t panels() const {
    if (use_ == MatrixUse::kPlain) return (n_ + kPanel - 1) / kPanel;
    return 2 * ((n_ / 2 + kPanel - 1) / kPanel);
  }
  // Returns the weights of the output at place `lane` of a panel.
  OutputWeights At(int64_t panel, int lane) const {
    int64_t output = OutputAt(panel, lane);
    if (output < 0) return {};
    for (const TensorView& part : parts_) {
      const int64_t outputs = OutputsOf(part);
      if (output < outputs) {
        const bool outputs_first = order_ == MatrixOrder::kOutputsFirst;
        const int64_t first = outputs_first ? output * k_ : output;
        return {part.as<char>() + StoredBytes(part.dtype, static_cast<size_t>(first)), part.dtype,
                outputs_first ? 1 : outputs};
      }
      output -= outputs;
    }
    return {};
  }

 private:
  int64_t OutputsOf(const TensorView& part) const {
    return part.shape[order_ == MatrixOrder::kOutputsFirst ? 0 : 1];
  }
  int64_t InputsOf(const TensorView& part) const {
    return part.shape[order_ == MatrixOrder::kOutputsFirst ? 1 : 0];
  }
  // Returns -1 if there is no output.
  int64_t OutputAt(int64_t panel, int lane) const {
    if (use_ == MatrixUse::kPlain) {
      const int64_t output = panel * kPanel + lane;
      return output < n_ ? output : -1;
    }
    const int64_t output = panel / 2 * kPanel + lane;
    return output < n_ / 2 ? output + panel % 2 * (n_ / 2) : -1;
  }

  const std::span<const TensorView> parts_;
  const MatrixOrder order_;
  const MatrixUse use_;
  const int64_t k_;
  int64_t n_ = 0;
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_MATRIX_PARTS_H_
