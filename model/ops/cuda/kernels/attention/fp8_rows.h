// The layout of 8-bit keys and values (model/tensor/fp8.h) in this backend's cache: elements of a
// row, and scales. A page is the keys, or the values, of a KV block's tokens for one KV head:
// [64][head_dim] elements, then 64 scales.
//
// In each group of 16 elements the two halves alternate: bytes 2i and 2i + 1 are elements i and i +
// 8. So the even bytes of a word are neighbouring elements, and so are the odd ones. Each pair
// becomes one word of 16-bit elements, and a lane needs these two words for a step of MultiplyAdd.
// Elements after the last complete group of 16 are in order.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_FP8_ROWS_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_FP8_ROWS_H_

#include <type_traits>

#include "model/ops/cuda/kernels/simt.h"
#include "model/tensor/fp8.h"

namespace tlm::simt {

inline constexpr int kFp8PageTokens = 64;

// The byte of a row that has element d.
TLM_HOST_DEVICE int Fp8Place(int head_dim, int d) {
  if (d >= head_dim / 16 * 16) return d;
  return d / 16 * 16 + d % 8 * 2 + d % 16 / 8;
}
TLM_HOST_DEVICE constexpr int64_t Fp8PageBytes(int head_dim) {
  return int64_t{kFp8PageTokens} * (head_dim + 1);
}
// The byte of a page that has a row's scale.
TLM_HOST_DEVICE int Fp8ScaleOffset(int head_dim, int row) {
  return kFp8PageTokens * head_dim + row;
}

// --- Widening four elements at a time to 16 bits, without loss. ---

// The widened bits have to be multiplied by the row's scale and by 2^Fp8Exponent. That exponent
// depends on how elements are widened: converted to their own values, or moved as bits into fields
// whose exponent has another bias.
template <typename T, bool kConverted>
inline constexpr int kFp8Exponent = 120;
template <>
inline constexpr int kFp8Exponent<F16, false> = 8;
template <>
inline constexpr int kFp8Exponent<F16, true> = 0;
template <typename T>
inline constexpr bool kFp8Converts = false;
template <>
inline constexpr bool kFp8Converts<F16> = kHasE4m3ToF16;

// The least and the largest scale that Fp8ScaleOf returns.
inline constexpr uint32_t kFp8LeastScale = kFp8ScaleBias + static_cast<uint32_t>(kFp8MinExponent);
inline constexpr uint32_t kFp8MostScale = kFp8ScaleBias + kFp8MaxExponent;

// The factor of a row with this scale, in both halves of a word. It is finite for every scale byte,
// so a row that was never written, all zeros, gives zeros.
template <typename T, bool kConverted = kFp8Converts<T>>
TLM_DEVICE uint32_t Fp8Factor(uint32_t scale) {
  constexpr bool kIsF16 = std::is_same_v<T, F16>;
  constexpr uint32_t kOne = kIsF16 ? 0x04000400u : 0x00800080u;  // in the exponents
  constexpr uint32_t kBias = kIsF16 ? 15 : 127;
  const uint32_t high = scale < kFp8MostScale ? scale : kFp8MostScale;
  const uint32_t in_range = high > kFp8LeastScale ? high : kFp8LeastScale;
  constexpr uint32_t kOffset = kFp8Exponent<T, kConverted> + kBias - kFp8ScaleBias;
  // The least factor in float16 is the subnormal 2^-15.
  if (kFp8LeastScale + kOffset == 0 && in_range == kFp8LeastScale) return kOne / 2;
  return (in_range + kOffset) * kOne;
}

// The shift of a magnitude's 7 bits in each half of a word of T: the 4 low bits of its exponent and
// the 3 high bits of its fraction. Subnormals of E4M3 become subnormals of T.
template <typename T>
inline constexpr int kFp8Fields = 4;
template <>
inline constexpr int kFp8Fields<F16> = 7;

// Widens four elements: low gets bytes 0 and 2, high gets bytes 1 and 3. The result for a NaN is
// unspecified.
template <typename T, bool kConverted = kFp8Converts<T>>
TLM_DEVICE void Fp8Widen(uint32_t bytes, uint32_t factor, uint32_t& low, uint32_t& high) {
  if constexpr (kConverted) {
    E4m3ToF16(bytes, low, high);
  } else {
    constexpr int kShift = kFp8Fields<T>;
    constexpr uint32_t kMagnitude = 0x007f007fu << kShift;
    // This is one instruction for both words. Compilers would move bytes & .. after the shift.
    const uint32_t signs = SelectBits(0x80808080u, bytes, 0);
    // A sign that is not moved to the top of its half is within kMagnitude.
    static_assert((kMagnitude & 0x00800080u) == 0x00800080u);
    low = SelectBits(kMagnitude, bytes << kShift, signs << 8);
    high = SelectBits(kMagnitude, bytes >> (8 - kShift), signs);
  }
  low = MultiplyPair<T>(low, factor);
  high = MultiplyPair<T>(high, factor);
}
// Whether a row of this scale may have a NaN: such a row is stored with the largest scale.
TLM_DEVICE bool Fp8MayHaveNaN(uint32_t scale) { return scale >= kFp8MostScale; }

TLM_DEVICE bool Fp8IsNaN(uint8_t element) { return (element & 0x7fu) == kFp8NaN; }

}  // namespace tlm::simt

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_FP8_ROWS_H_
