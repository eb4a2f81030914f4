// Reads the weights of selected outputs from host matrices of any float type and order.
#ifndef TLM_MODEL_OPS_CUDA_WEIGHTS_WEIGHT_ROWS_H_
#define TLM_MODEL_OPS_CUDA_WEIGHTS_WEIGHT_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "model/ops/ops.h"
#include "model/tensor/dtype.h"
#include "model/tensor/tensor_view.h"

namespace tlm {

// The type that stacked parts are stored in: their common 16-bit type, else F32.
DType StoredType(std::span<const TensorView> parts);

// An infinity or a NaN among the weights, in the stored type.
struct NonFinite {
  size_t part = 0;
  int64_t element = 0;  // index in the part, in its own order
  double value = 0.0;
};
// INVALID_ARGUMENT, naming part, element and value.
absl::Status NonFiniteError(const NonFinite& found, const TensorView& part);

// Converts the elements of `part`, of any float type, to float32. Returns the first one that is not
// finite, as part 0, if there is one.
std::optional<NonFinite> ReadFloats(const TensorView& part, std::span<float> out);

// Host matrices of n_i outputs and k inputs, stacked along the outputs (Ops::PackMatrix), possibly
// unaligned. Non-owning; const methods may be called from several threads.
class WeightRows {
 public:
  // The parts have rank 2, float types and the same k. `stored` is the type in which weights are
  // stored: StoredType(parts), F32, or BF16 with rounding.
  WeightRows(std::span<const TensorView> parts, MatrixOrder order, DType stored);
  WeightRows(std::span<const TensorView> parts, MatrixOrder order)
      : WeightRows(parts, order, StoredType(parts)) {}

  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  DType stored_type() const { return stored_; }

  // Writes, for each of `outputs`, its k weights as stored_type() and then zeros up to row_stride
  // >= k elements; -1 gives a row of zeros. Returns the first value that is not finite, in the
  // order of rows and inputs, if there is one.
  std::optional<NonFinite> Read(std::span<const int64_t> outputs, int64_t row_stride,
                                void* out) const;

 private:
  // The location of one output's weights.
  struct Source {
    const std::byte* data = nullptr;  // the first input's weight; null: an output of zeros
    DType dtype = DType::kF32;
    int64_t stride = 1;  // elements from one input to the next
    size_t part = 0;
    int64_t element = 0;  // index in the part of the element that `data` points at
  };

  Source Find(int64_t output) const;
  // Reads the rows of `sources` from matrices whose first dimension is the inputs.
  void ReadColumns(std::span<const Source> sources, size_t row_bytes, std::byte* rows) const;
  template <typename From, typename To>
  static void ReadSquare(std::span<const Source> sources, int64_t begin, size_t inputs,
                         std::byte* out, size_t row_bytes);
  std::optional<NonFinite> CheckRow(const Source& source, const std::byte* row) const;

  const std::vector<TensorView> parts_;
  const MatrixOrder order_;
  const DType stored_;
  int64_t n_ = 0;
  int64_t k_ = 0;
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_WEIGHTS_WEIGHT_ROWS_H_
