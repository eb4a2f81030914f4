// Exponential and logarithm with the same bits on every host and device: only operations that
// IEEE 754 rounds correctly, in a written order, compiled without contraction.
#ifndef TLM_MODEL_BASE_ELEMENTARY_H_
#define TLM_MODEL_BASE_ELEMENTARY_H_

#include <cstdint>

// Marks functions that kernels of a GPU call too.
#ifdef __CUDACC__
#define TLM_EVERYWHERE __host__ __device__ __forceinline__
#else
#define TLM_EVERYWHERE inline
#endif

namespace tlm {

TLM_EVERYWHERE uint64_t DoubleBits(double x) { return __builtin_bit_cast(uint64_t, x); }
TLM_EVERYWHERE double DoubleOfBits(uint64_t x) { return __builtin_bit_cast(double, x); }

// ln 2 in two parts; the upper one has 32 bits, so its product with a small integer is exact.
inline constexpr double kLn2Upper = 0x1.62e42feep-1;
inline constexpr double kLn2Lower = 0x1.a39ef35793c76p-33;

// e^x for x <= 0, not NaN, within 1 unit in the last place; 0 below -700.
TLM_EVERYWHERE double ExpOfNegative(double x) {
  const double in_range = x < -700.0 ? -700.0 : x;
  // x = k ln 2 + r with k an integer and |r| <= ln(2) / 2: adding 1.5 * 2^52 leaves k in the low
  // bits.
  constexpr double kShift = 0x1.8p52;
  const double shifted = in_range * 0x1.71547652b82fep0 + kShift;
  const double k = shifted - kShift;
  const double r = (in_range - k * kLn2Upper) - k * kLn2Lower;
  // e^r by its Taylor series to the 13th order, remainder below 2^-57, summed in pairs (Estrin).
  const double r2 = r * r;
  const double r4 = r2 * r2;
  const double low = (0.5 + r * (1.0 / 6)) + r2 * (1.0 / 24 + r * (1.0 / 120));
  const double middle = (1.0 / 720 + r * (1.0 / 5040)) + r2 * (1.0 / 40320 + r * (1.0 / 362880));
  const double high =
      (1.0 / 3628800 + r * (1.0 / 39916800)) + r2 * (1.0 / 479001600 + r * (1.0 / 6227020800));
  const double power = 1.0 + (r + r2 * (low + r4 * (middle + r4 * high)));
  // Times 2^k through the exponent: the power is in [0.7, 1.42] and k in [-1010, 0].
  const double scaled = DoubleOfBits(DoubleBits(power) + (DoubleBits(shifted) << 52));
  return x < -700.0 ? 0.0 : scaled;
}

// ln x for normal x > 0, not infinite, within 1 unit in the last place.
TLM_EVERYWHERE double Log(double x) {
  // x = 2^k m with m in [sqrt(1/2), sqrt(2)).
  constexpr uint64_t kRootOfHalf = 0x3fe6a09e667f3bcd;
  const uint64_t offset = DoubleBits(x) - kRootOfHalf;
  const double k = static_cast<double>(static_cast<int64_t>(offset) >> 52);
  const double m = DoubleOfBits((offset & 0x000fffffffffffff) + kRootOfHalf);
  // With f = m - 1 and s = f / (2 + f): ln m = 2 s + s R, R = sum over n >= 1 of
  // 2 s^(2n) / (2n + 1), and 2 s = f - s f; written so that f, which is exact, is added last.
  const double f = m - 1.0;
  const double s = f / (2.0 + f);
  const double z = s * s;
  double series = 2.0 / 21;
  series = series * z + 2.0 / 19;
  series = series * z + 2.0 / 17;
  series = series * z + 2.0 / 15;
  series = series * z + 2.0 / 13;
  series = series * z + 2.0 / 11;
  series = series * z + 2.0 / 9;
  series = series * z + 2.0 / 7;
  series = series * z + 2.0 / 5;
  series = series * z + 2.0 / 3;
  const double half_square = 0.5 * f * f;
  const double correction = s * (half_square + series * z) + k * kLn2Lower;
  return k * kLn2Upper - ((half_square - correction) - f);
}

}  // namespace tlm

#endif  // TLM_MODEL_BASE_ELEMENTARY_H_
