// Which element type keys and values have.
#ifndef TLM_MODEL_TENSOR_KV_DTYPE_H_
#define TLM_MODEL_TENSOR_KV_DTYPE_H_

#include "model/tensor/dtype.h"

namespace tlm {

// On the CPU, unless told otherwise, beside matrices of this type: 16 bits where those have no
// more.
constexpr DType DefaultKvDType(DType weights) {
  switch (weights) {
    case DType::kBF16:
    case DType::kI8:
      return DType::kBF16;
    case DType::kF16:
      return DType::kF16;
    default:
      return DType::kF32;
  }
}

}  // namespace tlm

#endif  // TLM_MODEL_TENSOR_KV_DTYPE_H_
