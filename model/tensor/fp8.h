// Keys and values in 8 bits: the format, and its arithmetic on one element at a time. The functions
// are plain, so host and device compilers accept them; kernels may compute the same results in
// other ways.
//
// A row is the key, or the value, of one token for one kv head: head_dim elements in E4M3 (sign, 4
// exponent bits, 3 fraction bits; no infinity, 0x7f and 0xff are NaN; largest 448; Micikevicius et
// al. 2022) and one scale for all of them, a power of two (E8M0 of the OCP Microscaling formats
// 1.0):
//   scale    byte E + 127 for 2^E, E = floor(log2 m) - 7 within [-15, 7], m the row's largest
//            magnitude, so that m / 2^E is in [128, 256) where the limits allow
//   element  x / 2^E rounded to the nearest, ties to even, subnormals (multiples of 2^-9) included;
//            beyond 448, which needs m >= 2^15, the nearest is 448
// Each row has its own scale, rather than each block: a row means the same whatever tokens follow
// it and however a prompt was cut into batches.
//
// An element that is NaN or an infinity is stored as NaN (an infinity that saturated would go
// unseen). m of such a row is not finite, so E is 7; its other elements are stored within that
// scale. E of a row of zeros is -15.
//
// Stored values are read back exactly, as float32, bfloat16 or float16: element * 2^E has at most 4
// significant bits, is a multiple of 2^-9 * 2^-15 = 2^-24, the least subnormal of float16, and is
// at most 448 * 2^7 = 57344, below float16's largest, 65504. It is not subnormal in bfloat16 or
// float32.
#ifndef TLM_MODEL_TENSOR_FP8_H_
#define TLM_MODEL_TENSOR_FP8_H_

#include <stdint.h>

// Inlined everywhere: files compiled for different instruction sets must not share a copy.
#ifdef __CUDACC__
#define TLM_FP8_FUNCTION static __host__ __device__ __forceinline__
#else
#define TLM_FP8_FUNCTION static inline __attribute__((always_inline))
#endif

namespace tlm {

constexpr int kFp8MinExponent = -15;
constexpr int kFp8MaxExponent = 7;
constexpr uint32_t kFp8ScaleBias = 127;
constexpr float kFp8Largest = 448.0f;
constexpr uint8_t kFp8NaN = 0x7f;

TLM_FP8_FUNCTION float Fp8FloatOf(uint32_t bits) {
  union {
    uint32_t bits;
    float value;
  } both;
  both.bits = bits;
  return both.value;
}
TLM_FP8_FUNCTION uint32_t Fp8BitsOf(float value) {
  union {
    float value;
    uint32_t bits;
  } both;
  both.value = value;
  return both.bits;
}

// Returns the scale's byte. `largest_bits` is the largest magnitude of the row, as the bits of a
// float32 without its sign. Bits order like magnitudes, with infinity and NaN above all.
TLM_FP8_FUNCTION uint8_t Fp8ScaleOf(uint32_t largest_bits) {
  constexpr uint32_t kMin = static_cast<uint32_t>(kFp8MinExponent) + kFp8ScaleBias;
  constexpr uint32_t kMax = kFp8MaxExponent + kFp8ScaleBias;
  const uint32_t exponent = largest_bits >> 23;  // biased like the scale
  if (exponent < kMin + 7) return static_cast<uint8_t>(kMin);
  return static_cast<uint8_t>(exponent > kMax + 7 ? kMax : exponent - 7);
}

// 2^E, and 2^-E, for bytes that Fp8ScaleOf returns.
TLM_FP8_FUNCTION float Fp8Scale(uint8_t scale) { return Fp8FloatOf(uint32_t{scale} << 23); }
TLM_FP8_FUNCTION float Fp8InverseScale(uint8_t scale) {
  return Fp8FloatOf((2 * kFp8ScaleBias - scale) << 23);
}

// Converts a value that has been multiplied by Fp8InverseScale to E4M3.
TLM_FP8_FUNCTION uint8_t Fp8Of(float scaled) {
  const uint32_t bits = Fp8BitsOf(scaled);
  const uint32_t sign = bits >> 24 & 0x80u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude >= 0x7f800000u) return static_cast<uint8_t>(sign | kFp8NaN);
  if (magnitude >= 0x43e00000u) return static_cast<uint8_t>(sign | 0x7eu);  // 448
  if (magnitude < 0x3c800000u) {
    // Below 2^-6, one unit in the last place of the sum is 2^-9.
    const float sum = Fp8FloatOf(magnitude) + 0x1p14f;
    return static_cast<uint8_t>(sign | (Fp8BitsOf(sum) - 0x46800000u));
  }
  const uint32_t odd = magnitude >> 20 & 1u;
  return static_cast<uint8_t>(sign | ((magnitude - 0x3c000000u + 0x7ffffu + odd) >> 20));
}

// The value of an element before its scale is applied. Exact.
TLM_FP8_FUNCTION float Fp8Value(uint8_t element) {
  const uint32_t sign = (element & 0x80u) << 24;
  const uint32_t magnitude = element & 0x7fu;
  if (magnitude == kFp8NaN) return Fp8FloatOf(sign | 0x7fc00000u);
  if (magnitude < 8) {
    // Takes the exponent of the least normal numbers, then subtracts their leading 1.
    const float value = Fp8FloatOf(0x3c800000u + (magnitude << 20)) - 0x1p-6f;
    return Fp8FloatOf(sign | Fp8BitsOf(value));
  }
  return Fp8FloatOf(sign | ((magnitude << 20) + 0x3c000000u));
}

}  // namespace tlm

#endif  // TLM_MODEL_TENSOR_FP8_H_
