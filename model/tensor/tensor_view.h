// Non-owning views of dense, row-major tensors in host or device memory.
#ifndef TLM_MODEL_TENSOR_TENSOR_VIEW_H_
#define TLM_MODEL_TENSOR_TENSOR_VIEW_H_

#include <cstddef>
#include <cstdint>

#include "model/tensor/dtype.h"
#include "model/tensor/shape.h"

namespace tlm {

// A read-only tensor that it does not own; valid as long as the owner keeps the data. Copyable.
struct TensorView {
  DType dtype = DType::kF32;
  Shape shape;
  const void* data = nullptr;
  // Of matrices in blocks: element i of a stored row is that of input input_order[i], a permutation
  // (GPTQ's act-order); null: of input i.
  const int32_t* input_order = nullptr;

  int64_t elements() const { return shape.elements(); }
  size_t bytes() const { return StoredBytes(dtype, static_cast<size_t>(elements())); }
  // The elements as T; the caller has checked that dtype says T.
  template <typename T>
  const T* as() const {
    return static_cast<const T*>(data);
  }
};

}  // namespace tlm

#endif  // TLM_MODEL_TENSOR_TENSOR_VIEW_H_
