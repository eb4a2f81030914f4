// Keys and values in 8 bits (model/tensor/fp8.h) as this backend's cache has them: how a row's
// elements lie, and where the scales are. A page is the keys, or the values, of a block's tokens
// for one kv head: [64][head_dim] elements, then 64 scales.
//
// The halves of each 16 elements alternate: bytes 2i and 2i + 1 of 16 are elements i and i + 8. The
// even bytes of a word, as its odd ones, are then neighbours that make a word of 16-bit elements,
// and the two words are what a lane holds of a step of MultiplyAdd. Elements after the last whole
// 16 lie in order.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_FP8_ROWS_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_FP8_ROWS_H_

#include "model/ops/cuda/kernels/simt.h"
#include "model/tensor/fp8.h"

namespace tlm::simt {

inline constexpr int kFp8PageTokens = 64;

// Where element d of a row lies within it.
TLM_HOST_DEVICE int Fp8Place(int head_dim, int d) {
  if (d >= head_dim / 16 * 16) return d;
  return d / 16 * 16 + d % 8 * 2 + d % 16 / 8;
}
TLM_HOST_DEVICE int64_t Fp8PageBytes(int head_dim) {
  return int64_t{kFp8PageTokens} * (head_dim + 1);
}
// Where a row's scale lies within its page.
TLM_HOST_DEVICE int Fp8ScaleOffset(int head_dim, int row) {
  return kFp8PageTokens * head_dim + row;
}

// --- Four elements at a time, to 16 bits. Exact. ---

// The factor that turns elements moved into the fields of T (Fp8Fields) into values of a row with
// this scale, in both halves of a word. It is finite whatever the scale's byte: that of a row that
// was never written makes zeros of zeros.
template <typename T>
TLM_DEVICE uint32_t Fp8Factor(uint32_t scale);
// Scales that Fp8ScaleOf returns, the least and the largest.
inline constexpr uint32_t kFp8LeastScale = kFp8ScaleBias + static_cast<uint32_t>(kFp8MinExponent);
inline constexpr uint32_t kFp8MostScale = kFp8ScaleBias + kFp8MaxExponent;
TLM_DEVICE uint32_t Fp8ScaleInRange(uint32_t scale) {
  const uint32_t high = scale < kFp8MostScale ? scale : kFp8MostScale;
  return high > kFp8LeastScale ? high : kFp8LeastScale;
}
// 2^120 * 2^E: the exponents' biases differ by 120.
template <>
TLM_DEVICE uint32_t Fp8Factor<Bf16>(uint32_t scale) {
  return (Fp8ScaleInRange(scale) + 120) * 0x00800080u;
}
// 2^8 * 2^E.
template <>
TLM_DEVICE uint32_t Fp8Factor<F16>(uint32_t scale) {
  return (Fp8ScaleInRange(scale) + 8 - kFp8ScaleBias + 15) * 0x04000400u;
}

// Where a magnitude's 7 bits lie in either half of a word of T: its exponent's 4 low bits and its
// fraction's 3 high ones. Subnormals of E4M3 are subnormals of T there.
template <typename T>
inline constexpr int kFp8Fields = 4;
template <>
inline constexpr int kFp8Fields<F16> = 7;

// Words of values: low = of bytes 0 and 2, high = of bytes 1 and 3. A NaN becomes 480 * 2^E.
template <typename T>
TLM_DEVICE void Fp8Widen(uint32_t bytes, uint32_t factor, uint32_t& low, uint32_t& high) {
  constexpr int kShift = kFp8Fields<T>;
  constexpr uint32_t kMagnitude = 0x007f007fu << kShift;
  // One instruction for both words: not as bytes & .., which compilers move behind the shift.
  const uint32_t signs = SelectBits(0x80808080u, bytes, 0);
  // A sign that is not moved to the top of its half lies under kMagnitude.
  static_assert((kMagnitude & 0x00800080u) == 0x00800080u);
  low = MultiplyPair<T>(SelectBits(kMagnitude, bytes << kShift, signs << 8), factor);
  high = MultiplyPair<T>(SelectBits(kMagnitude, bytes >> (8 - kShift), signs), factor);
}
// Whether a row of this scale may have a NaN: one that has is stored with the largest.
TLM_DEVICE bool Fp8MayHaveNaN(uint32_t scale) { return scale >= kFp8MostScale; }

TLM_DEVICE bool Fp8IsNaN(uint8_t element) { return (element & 0x7fu) == kFp8NaN; }

}  // namespace tlm::simt

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_FP8_ROWS_H_
