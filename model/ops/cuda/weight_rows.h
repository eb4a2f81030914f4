// Reads the weights of chosen outputs from host matrices of any float type and order.
#ifndef TLM_MODEL_OPS_CUDA_WEIGHT_ROWS_H_
#define TLM_MODEL_OPS_CUDA_WEIGHT_ROWS_H_

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

// The type that stacked parts are stored in: one 16-bit type if all agree on it, else F32.
DType StoredType(std::span<const TensorView> parts);

// An infinity or a NaN among the weights, as it is stored.
struct NonFinite {
  size_t part = 0;
  int64_t element = 0;  // of the part, in its own order
  double value = 0.0;
};
// INVALID_ARGUMENT naming all of it.
absl::Status NonFiniteError(const NonFinite& found, const TensorView& part);

// Elements of `part`, any float type, as float32. The first that is not finite, as part 0, if any.
std::optional<NonFinite> ReadFloats(const TensorView& part, std::span<float> out);

// Host matrices of n_i outputs and k inputs stacked along the outputs (Ops::PackMatrix), not
// necessarily aligned. Non-owning; const methods may be called from several threads.
class WeightRows {
 public:
  // Parts are of rank 2 and of float types, and agree on k. Weights are stored as `stored`:
  // StoredType(parts), F32, or BF16 with a rounding.
  WeightRows(std::span<const TensorView> parts, MatrixOrder order, DType stored);
  WeightRows(std::span<const TensorView> parts, MatrixOrder order)
      : WeightRows(parts, order, StoredType(parts)) {}

  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  DType stored_type() const { return stored_; }

  // Writes the k weights of each of `outputs` (-1: zeros), as stored_type(), and then zeros to rows
  // of row_stride >= k elements. The first value that is not finite, by row and input, if any.
  std::optional<NonFinite> Read(std::span<const int64_t> outputs, int64_t row_stride,
                                void* out) const;

 private:
  // Where the weights of one output lie.
  struct Source {
    const std::byte* data = nullptr;  // of the first input; null: an output of zeros
    DType dtype = DType::kF32;
    int64_t stride = 1;  // elements from one input to the next
    size_t part = 0;
    int64_t element = 0;  // of the part, that `data` points at
  };

  Source Find(int64_t output) const;
  // The rows of `sources` where the inputs come first.
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

#endif  // TLM_MODEL_OPS_CUDA_WEIGHT_ROWS_H_
