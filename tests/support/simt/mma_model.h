// A bit-exact model of the tensor cores: mma.sync m16n8k16 with 16-bit inputs and float32
// accumulators.
//
// The accumulator c and n products a[i] b[i] are added in one fused sum:
//
//   1. Each term has an exponent: the exponent of c, or the sum of its factors' exponents, where a
//      zero or subnormal has the least exponent of its format (-126; float16: -14). The product of
//      the significands is exact, in (-4, 4), and is not normalised.
//   2. All terms are aligned to the largest exponent E and truncated (towards zero) to F fractional
//      bits: units of 2^(E - F).
//   3. The truncated terms are added exactly.
//   4. The sum is normalised and truncated (towards zero) to float32, subnormals included; at or
//      above 2^128 it becomes infinity.
//
// Infinities add as in IEEE 754; any NaN, 0 * infinity or infinity - infinity gives the bits
// 0x7fffffff.
//
// Source: "MMA-Sim: Bit-Accurate Reference Model of Tensor Cores and Matrix Cores", arXiv
// 2511.10909, which found no difference from hardware in large random tests. Hopper: F = 25, n =
// 16, for mma.sync and wgmma alike. Ampere: F = 24, and two successive sums of n = 8. The
// publication leaves two points open. This model assumes that products that are zero do not affect
// E, and that a sum that truncates to zero is +0; tests/gpu/canon checks both on hardware.
#ifndef TLM_TESTS_SUPPORT_SIMT_MMA_MODEL_H_
#define TLM_TESTS_SUPPORT_SIMT_MMA_MODEL_H_

#include <cstdint>

namespace tlm::simt {

enum class MmaInput { kBf16, kF16 };

struct MmaUnit {
  int fraction_bits;  // F, at most 28
  int products;       // n: 8 or 16
  // Defects, for tests that must find them. If true, products that are zero affect E, by the
  // exponents in 1:
  bool zeros_align = false;
  // In MmaTile, the products of the other columns of b affect E:
  bool columns_align = false;

  bool operator==(const MmaUnit&) const = default;
};
inline constexpr MmaUnit kHopperMma = {25, 16};
inline constexpr MmaUnit kAmpereMma = {24, 8};

// Computes c[r][j] += sum over k of a[r][k] b[j][k]: one m16n8k16.
void MmaTile(MmaUnit unit, MmaInput input, const uint16_t (&a)[16][16], const uint16_t (&b)[8][16],
             float (&c)[16][8]);

// Returns the new value of one element of c. `a` and `b` have `k` values, a multiple of 16, which
// are taken in order, like in a loop of mma over k.
float MmaDot(MmaUnit unit, MmaInput input, const uint16_t* a, const uint16_t* b, int k, float c);

}  // namespace tlm::simt

#endif  // TLM_TESTS_SUPPORT_SIMT_MMA_MODEL_H_
