// Reads single elements of any float type as float.
#ifndef TLM_MODEL_OPS_CPU_CONVERT_H_
#define TLM_MODEL_OPS_CPU_CONVERT_H_

#include <cstdint>
#include <cstring>

#include "model/base/float16.h"
#include "model/tensor/dtype.h"

namespace tlm {

// Returns element `index` of an array of float type `dtype`. The array may be unaligned, as in
// mapped files.
inline float ReadElement(const void* data, DType dtype, int64_t index) {
  const char* const at =
      static_cast<const char*>(data) + index * static_cast<int64_t>(DTypeBytes(dtype));
  uint16_t half;
  float single;
  double wide;
  switch (dtype) {
    case DType::kBF16:
      std::memcpy(&half, at, sizeof(half));
      return Bf16ToFloat(half);
    case DType::kF16:
      std::memcpy(&half, at, sizeof(half));
      return F16ToFloat(half);
    case DType::kF64:
      std::memcpy(&wide, at, sizeof(wide));
      return static_cast<float>(wide);
    default:
      std::memcpy(&single, at, sizeof(single));
      return single;
  }
}

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_CONVERT_H_
