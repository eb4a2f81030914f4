// A matrix of integer weights with scales.
#ifndef TLM_MODEL_OPS_CPU_QUANT_MATRIX_H_
#define TLM_MODEL_OPS_CPU_QUANT_MATRIX_H_

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "model/ops/cpu/cpu_matrix.h"
#include "model/ops/cpu/kernels/kernels.h"
#include "model/ops/cpu/matrix_parts.h"
#include "model/ops/cpu/thread_pool.h"
#include "model/ops/device.h"
#include "model/tensor/buffer.h"

namespace tlm {

// [n, k] as panels of 16 output features; kernels/quant.h describes a panel and the products.
// Consists of segments of consecutive outputs, each of its own type. The groups of all segments
// have the same length, so that rows of activations are quantised once for all.
class QuantMatrix : public CpuMatrix {
 public:
  struct Segment {
    DType type = DType::kI8G256;
    QuantLayout layout = {};
    int64_t n = 0;
    int64_t first_output = 0;
    int64_t panels = 0;
    Buffer data = {};
  };

  // Whether these parts, all in blocks of integers, can be one matrix: their blocks have the same
  // length and their inputs the same order; parts of a gated matrix also have the same type.
  static bool Fit(std::span<const TensorView> parts, MatrixUse use);
  // Pack takes parts that Fit and keeps their values; Quantise takes parts of floats and quantises
  // them to `type`. `importance` is of the inputs [k], or null (see model/tensor/quantise.h). Both
  // return INVALID_ARGUMENT for a value that is not finite, and RESOURCE_EXHAUSTED like Allocate.
  static absl::StatusOr<std::unique_ptr<QuantMatrix>> Pack(std::span<const TensorView> parts,
                                                           MatrixUse use, Device& device,
                                                           ThreadPool& pool);
  static absl::StatusOr<std::unique_ptr<QuantMatrix>> Quantise(const MatrixParts& parts,
                                                               MatrixUse use, DType type,
                                                               const float* importance,
                                                               Device& device, ThreadPool& pool);
  // An upper bound on the bytes of an ungated matrix of one type.
  static size_t BytesFor(DType type, int64_t n, int64_t k);

  Kind kind() const override { return Kind::kQuant; }
  int64_t n() const override { return n_; }
  int64_t k() const override { return k_; }
  DType dtype() const override { return DType::kI8; }
  size_t bytes() const override;
  std::map<DType, uint64_t> BytesByType() const override;
  void CopyRow(int64_t row, float* out) const override;
  void AddRow(int64_t row, float* to) const override;

  int64_t panels() const;  // panels of all segments
  std::span<const Segment> segments() const { return segments_; }
  int64_t group() const { return segments_.front().layout.group; }
  bool gated() const { return use_ == MatrixUse::kGated; }
  // [k], or null; see TensorView.
  const int32_t* input_order() const {
    return input_order_.empty() ? nullptr : input_order_.data();
  }

 private:
  QuantMatrix(int64_t k, MatrixUse use) : k_(k), use_(use) {}
  // Calls take(input, weight) for every weight of an output.
  template <typename Take>
  void ForEachWeight(int64_t row, const Take& take) const;

  int64_t n_ = 0;
  const int64_t k_;
  const MatrixUse use_;
  std::vector<int32_t> input_order_;
  std::vector<Segment> segments_;
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_QUANT_MATRIX_H_
