// Non-owning views of dense, row-major tensors in host or device memory.
#ifndef TLM_MODEL_TENSOR_TENSOR_VIEW_H_
#define TLM_MODEL_TENSOR_TENSOR_VIEW_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "model/base/errors.h"
#include "model/tensor/dtype.h"

namespace tlm {

// Up to kMaxRank dimensions, outermost first. A scalar has rank 0 and one element.
class Shape {
 public:
  static constexpr int kMaxRank = 8;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) {
    TLM_CHECK(dims.size() <= kMaxRank);
    for (const int64_t dim : dims) dims_[rank_++] = dim;
  }

  int rank() const { return rank_; }
  int64_t operator[](int axis) const { return dims_[axis]; }
  // Adds an innermost dimension; rank() < kMaxRank must hold.
  void Append(int64_t dim) {
    TLM_CHECK(rank_ < kMaxRank);
    dims_[rank_++] = dim;
  }
  // The product of all dimensions. Not checked for overflow: callers check untrusted dimensions.
  int64_t elements() const {
    int64_t product = 1;
    for (int axis = 0; axis < rank_; ++axis) product *= dims_[axis];
    return product;
  }
  bool operator==(const Shape& other) const {
    if (rank_ != other.rank_) return false;
    for (int axis = 0; axis < rank_; ++axis) {
      if (dims_[axis] != other.dims_[axis]) return false;
    }
    return true;
  }
  // For example "[3, 4]".
  std::string ToString() const {
    std::string text = "[";
    for (int axis = 0; axis < rank_; ++axis) {
      if (axis > 0) text += ", ";
      text += std::to_string(dims_[axis]);
    }
    return text + "]";
  }

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

// A read-only tensor whose data another object owns and must keep. Copyable.
struct TensorView {
  DType dtype = DType::kF32;
  Shape shape;
  const void* data = nullptr;
  // For matrices in blocks: element i of a stored row belongs to input input_order[i], a
  // permutation (GPTQ's act-order); null: to input i.
  const int32_t* input_order = nullptr;

  int64_t elements() const { return shape.elements(); }
  size_t bytes() const { return StoredBytes(dtype, static_cast<size_t>(elements())); }
  // The elements as T; the caller has checked that T matches dtype.
  template <typename T>
  const T* as() const {
    return static_cast<const T*>(data);
  }
};

}  // namespace tlm

#endif  // TLM_MODEL_TENSOR_TENSOR_VIEW_H_
