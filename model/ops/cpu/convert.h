// Single elements of any float type, to and from float.
#ifndef TLM_MODEL_OPS_CPU_CONVERT_H_
#define TLM_MODEL_OPS_CPU_CONVERT_H_

#include <cstdint>
#include <cstring>

#include "model/base/float16.h"
#include "model/tensor/dtype.h"

namespace tlm {

// Element `index` of an array of float type `dtype` that may be unaligned, as a mapped file's is.
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

// Rounds `value` to F32, BF16 or F16 and stores it as element `index`.
inline void WriteElement(void* data, DType dtype, int64_t index, float value) {
  switch (dtype) {
    case DType::kBF16:
      static_cast<uint16_t*>(data)[index] = FloatToBf16(value);
      return;
    case DType::kF16:
      static_cast<uint16_t*>(data)[index] = FloatToF16(value);
      return;
    default:
      static_cast<float*>(data)[index] = value;
      return;
  }
}

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_CONVERT_H_
