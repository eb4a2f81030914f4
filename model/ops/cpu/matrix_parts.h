// Host matrices stacked along their outputs, as packing reads them.
#ifndef TLM_MODEL_OPS_CPU_MATRIX_PARTS_H_
#define TLM_MODEL_OPS_CPU_MATRIX_PARTS_H_

#include <cstdint>
#include <span>

#include "model/base/errors.h"
#include "model/ops/cpu/kernels/matmul.h"
#include "model/ops/ops.h"
#include "model/tensor/tensor_view.h"

namespace tlm {

// The location of the weights of one output.
struct OutputWeights {
  const char* data = nullptr;  // of the first input; null: there is no such output
  DType dtype = DType::kF32;
  int64_t stride = 1;  // elements from one input to the next; in blocks 1
};

// Does not own the parts.
class MatrixParts {
 public:
  // All of the same k, of float types or in blocks, at least one. Those in blocks are
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
  // The weights of the output that stands in place `lane` of a panel.
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
  // -1: none.
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
