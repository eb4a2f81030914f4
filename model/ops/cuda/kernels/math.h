// Elementary functions with the same bits on host and device. They use only operations that IEEE
// 754 rounds correctly, in a fixed order. Tests compare them with float64
// (tests/unit/model/ops/cuda).
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_MATH_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_MATH_H_

#include "model/ops/cuda/kernels/simt.h"

namespace tlm::simt {

// Returns 2^x for -125 <= x <= 0, within 2 units in the last place. For other x the result is
// unspecified.
TLM_HOST_DEVICE float Exp2InRange(float x) {
  // x = i + f with i an integer and f in [-0.5, 0.5]: adding 1.5 * 2^23 leaves i in the low bits.
  const float shifted = x + 12582912.0f;
  const float f = x - (shifted - 12582912.0f);
  // 2^f by its Taylor series to the 7th order; the remainder is below 2^-25 of the value.
  float p = 1.5252733804e-5f;
  p = Fma(p, f, 1.5403530394e-4f);
  p = Fma(p, f, 1.3333558146e-3f);
  p = Fma(p, f, 9.6181291076e-3f);
  p = Fma(p, f, 5.5504108664e-2f);
  p = Fma(p, f, 2.4022650696e-1f);
  p = Fma(p, f, 6.9314718056e-1f);
  p = Fma(p, f, 1.0f);
  // Multiplies by 2^i by adding to the exponent: p is in [0.7, 1.42] and i in [-125, 0].
  const uint32_t exponent = (FloatBits(shifted) - FloatBits(12582912.0f)) << 23;
  return FloatOfBits(FloatBits(p) + exponent);
}

// Returns 2^x for x <= 0, given in_range = Exp2InRange(x); 0 below -125 and for -infinity, NaN for
// NaN.
TLM_HOST_DEVICE float Exp2Anywhere(float x, float in_range) {
  // Selected at the end, without a branch, so that a device works on several values at once.
  const float otherwise = x != x ? x : 0.0f;
  return x >= -125.0f ? in_range : otherwise;
}
TLM_HOST_DEVICE float Exp2OfNegative(float x) { return Exp2Anywhere(x, Exp2InRange(x)); }

}  // namespace tlm::simt

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_MATH_H_
