#include "tests/support/simt/mma_model.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "model/base/float16.h"

namespace tlm::simt {
namespace {

constexpr int kTermCount = 16;
constexpr uint32_t kCanonicalNan = 0x7fffffffu;
// The exponent of zeros: it keeps their products' exponents below all others.
constexpr int kNoExponent = -1000;

// The values of one row or column, and their exponents.
struct Operand {
  double value[kTermCount];
  int exponent[kTermCount];
  bool finite;
  bool zero;  // all values are zero
};

int Bf16Exponent(uint16_t bits) { return std::max(bits >> 7 & 0xff, 1) - 127; }
int F16Exponent(uint16_t bits) { return std::max(bits >> 10 & 0x1f, 1) - 15; }
int FloatExponent(float value) {
  return std::max<int>(std::bit_cast<uint32_t>(value) >> 23 & 0xff, 1) - 127;
}

void Decode(MmaUnit unit, MmaInput input, const uint16_t* from, Operand& operand) {
  operand.finite = operand.zero = true;
  for (int i = 0; i < kTermCount; ++i) {
    const bool bf16 = input == MmaInput::kBf16;
    const float value = bf16 ? Bf16ToFloat(from[i]) : F16ToFloat(from[i]);
    operand.value[i] = value;
    const bool ignored = value == 0.0f && !unit.zeros_align;
    operand.exponent[i] = ignored ? kNoExponent
                          : bf16  ? Bf16Exponent(from[i])
                                  : F16Exponent(from[i]);
    operand.finite &= std::isfinite(value);
    operand.zero &= ignored;
  }
}

// Returns 2^exponent, a normal double.
double PowerOfTwo(int exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

// Truncates towards zero; infinity from 2^128 on; zero is +0.
float TruncateToFloat(double value) {
  const float nearest = static_cast<float>(value);
  if (nearest == 0.0f) return 0.0f;
  if (std::fabs(value) >= 0x1p128) return nearest;
  const bool beyond = std::fabs(double{nearest}) > std::fabs(value);
  const float toward_zero =
      std::bit_cast<float>(std::bit_cast<uint32_t>(nearest) - (beyond ? 1 : 0));
  return toward_zero == 0.0f ? 0.0f : toward_zero;
}

float SpecialSum(const Operand& a, const Operand& b, int begin, int count, float c) {
  double sum = c;
  for (int i = begin; i < begin + count; ++i) sum += a.value[i] * b.value[i];
  return std::isnan(sum) ? std::bit_cast<float>(kCanonicalNan) : static_cast<float>(sum);
}

// Returns the fused sum of `kCount` products from `begin` on; E is at least `least`.
template <int kCount>
float FusedSum(int fraction_bits, const Operand& a, const Operand& b, int begin, float c,
               int least) {
  if (!a.finite || !b.finite || !std::isfinite(c)) return SpecialSum(a, b, begin, kCount, c);
  int largest = std::max(FloatExponent(c), least);
  const bool fits = fraction_bits >= 23 && largest == FloatExponent(c);
  if (fits && (a.zero || b.zero)) return c + 0.0f;  // padding; zero is +0
  for (int i = begin; i < begin + kCount; ++i) {
    largest = std::max(largest, a.exponent[i] + b.exponent[i]);
  }
  // In units of 2^(largest - fraction_bits) a term is below 2^(fraction_bits + 2) <= 2^30.
  const double scale = PowerOfTwo(fraction_bits - largest);
  int64_t sum = static_cast<int32_t>(double{c} * scale);
  for (int i = begin; i < begin + kCount; ++i) {
    sum += static_cast<int32_t>(a.value[i] * b.value[i] * scale);
  }
  return TruncateToFloat(static_cast<double>(sum) * PowerOfTwo(largest - fraction_bits));
}

float AddChunk(MmaUnit unit, const Operand& a, const Operand& b, float c, int least) {
  if (unit.products == kTermCount) return FusedSum<16>(unit.fraction_bits, a, b, 0, c, least);
  c = FusedSum<8>(unit.fraction_bits, a, b, 0, c, least);
  return FusedSum<8>(unit.fraction_bits, a, b, 8, c, least);
}

// Returns the largest exponent of all products of a row.
int LargestExponent(const Operand& row, const Operand (&columns)[8]) {
  int largest = kNoExponent;
  for (const Operand& column : columns) {
    for (int i = 0; i < kTermCount; ++i) {
      largest = std::max(largest, row.exponent[i] + column.exponent[i]);
    }
  }
  return largest;
}

}  // namespace

void MmaTile(MmaUnit unit, MmaInput input, const uint16_t (&a)[16][16], const uint16_t (&b)[8][16],
             float (&c)[16][8]) {
  Operand columns[8];
  for (int j = 0; j < 8; ++j) Decode(unit, input, b[j], columns[j]);
  for (int r = 0; r < 16; ++r) {
    Operand row;
    Decode(unit, input, a[r], row);
    const int least = unit.columns_align ? LargestExponent(row, columns) : kNoExponent;
    for (int j = 0; j < 8; ++j) c[r][j] = AddChunk(unit, row, columns[j], c[r][j], least);
  }
}

float MmaDot(MmaUnit unit, MmaInput input, const uint16_t* a, const uint16_t* b, int k, float c) {
  for (int i = 0; i < k; i += kTermCount) {
    Operand row, column;
    Decode(unit, input, a + i, row);
    Decode(unit, input, b + i, column);
    c = AddChunk(unit, row, column, c, kNoExponent);
  }
  return c;
}

}  // namespace tlm::simt
