// Reads elements of the float types (IsFloat) as float. Elements may be unaligned, as in mapped
// files.
#ifndef TLM_MODEL_TENSOR_FLOAT_ELEMENTS_H_
#define TLM_MODEL_TENSOR_FLOAT_ELEMENTS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "model/base/float16.h"
#include "model/tensor/dtype.h"

namespace tlm {

// An element of one float type: its form in memory, and its value. Value is exact, except that F64
// is rounded to the nearest float.
struct Bf16Element {
  using Bits = uint16_t;
  static float Value(Bits bits) { return Bf16ToFloat(bits); }
};
struct F16Element {
  using Bits = uint16_t;
  static float Value(Bits bits) { return F16ToFloat(bits); }
};
struct F32Element {
  using Bits = float;
  static float Value(Bits bits) { return bits; }
};
struct F64Element {
  using Bits = double;
  static float Value(Bits bits) { return static_cast<float>(bits); }
};

// Calls body.operator()<Element>() for the elements of float type `dtype`, so that a loop in the
// body is compiled for each type.
template <typename Body>
decltype(auto) WithFloatElement(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kBF16:
      return body.template operator()<Bf16Element>();
    case DType::kF16:
      return body.template operator()<F16Element>();
    case DType::kF64:
      return body.template operator()<F64Element>();
    default:
      return body.template operator()<F32Element>();
  }
}

template <typename Element>
typename Element::Bits LoadElement(const void* at) {
  typename Element::Bits bits;
  std::memcpy(&bits, at, sizeof(bits));
  return bits;
}

// Returns element `index` of an array of float type `dtype`.
inline float FloatAt(const void* data, DType dtype, int64_t index) {
  const char* const at =
      static_cast<const char*>(data) + index * static_cast<int64_t>(DTypeBytes(dtype));
  return WithFloatElement(
      dtype, [at]<typename Element>() { return Element::Value(LoadElement<Element>(at)); });
}

// The same without rounding F64.
inline double DoubleAt(const void* data, DType dtype, int64_t index) {
  if (dtype != DType::kF64) return FloatAt(data, dtype, index);
  return LoadElement<F64Element>(static_cast<const char*>(data) +
                                 index * static_cast<int64_t>(sizeof(double)));
}

// Writes to `out` the first of `count` elements that are `stride` elements apart, the second, and
// so on.
inline void FloatsAt(const void* data, DType dtype, int64_t stride, int64_t count, float* out) {
  WithFloatElement(dtype, [=]<typename Element>() {
    const auto* from = static_cast<const char*>(data);
    const size_t step = static_cast<size_t>(stride) * sizeof(typename Element::Bits);
    for (int64_t i = 0; i < count; ++i, from += step) {
      out[i] = Element::Value(LoadElement<Element>(from));
    }
  });
}

}  // namespace tlm

#endif  // TLM_MODEL_TENSOR_FLOAT_ELEMENTS_H_
