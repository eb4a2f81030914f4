#include "tests/support/simt/mma_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "model/base/float16.h"

namespace tlm::simt {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The sum of c and the given products; the others are 0 * 0.
float Sum(std::vector<std::pair<float, float>> products, float c, MmaUnit unit = kHopperMma,
          MmaInput input = MmaInput::kBf16) {
  uint16_t a[16] = {}, b[16] = {};
  for (size_t i = 0; i < products.size(); ++i) {
    const bool bf16 = input == MmaInput::kBf16;
    a[i] = bf16 ? FloatToBf16(products[i].first) : FloatToF16(products[i].first);
    b[i] = bf16 ? FloatToBf16(products[i].second) : FloatToF16(products[i].second);
  }
  return MmaDot(unit, input, a, b, 16, c);
}

uint32_t Bits(float value) { return std::bit_cast<uint32_t>(value); }

TEST(MmaModelTest, AddsExactlyWhatFits) {
  EXPECT_EQ(Sum({{3.0f, 5.0f}, {-2.0f, 0.5f}}, 0.25f), 14.25f);
  EXPECT_EQ(Sum({}, 1.0f), 1.0f);
}

TEST(MmaModelTest, TruncatesResultsTowardsZero) {
  // 2^-24 is half a unit in the last place of 1; three quarters of one do not round up either.
  EXPECT_EQ(Sum({{1.0f, 1.0f}, {0x1p-12f, 0x1p-12f}}, 0.0f), 1.0f);
  EXPECT_EQ(Sum({{1.0f, 1.0f}, {0x1p-12f, 0x1.8p-12f}}, 0.0f), 1.0f);
  EXPECT_EQ(Sum({{-1.0f, 1.0f}, {-0x1p-12f, 0x1.8p-12f}}, 0.0f), -1.0f);
  EXPECT_EQ(Sum({{1.0f, 1.0f}, {0x1p-12f, 0x1p-11f}}, 0.0f), 1.0f + 0x1p-23f);
  // Just below 1: the sum is exact in 25 bits, and its truncation is the float below.
  EXPECT_EQ(Sum({{1.0f, 1.0f}, {-0x1p-12f, 0x1p-13f}}, 0.0f), 1.0f - 0x1p-24f);
}

TEST(MmaModelTest, DropsWhatLiesBelowTwentyFiveBits) {
  // Aligned to 1, a term of 2^-25 is one unit and one of 2^-26 nothing, however many there are.
  EXPECT_EQ(Sum({{1.0f, 1.0f}, {-1.0f, 1.0f}, {0x1p-12f, 0x1p-13f}}, 0.0f), 0x1p-25f);
  EXPECT_EQ(Sum({{1.0f, 1.0f}, {-1.0f, 1.0f}, {0x1p-13f, 0x1p-13f}}, 0.0f), 0.0f);
  std::vector<std::pair<float, float>> many(15, {0x1p-13f, 0x1p-13f});
  EXPECT_EQ(Sum(many, 1.0f), 1.0f);
  EXPECT_EQ(Sum(many, 0.0f), 15 * 0x1p-26f);
  many.assign(15, {0x1p-12f, 0x1p-13f});
  EXPECT_EQ(Sum(many, 1.0f), 1.0f + 3 * 0x1p-23f);  // 15 units of 2^-25, truncated to 2^-23
  // Each term is truncated by itself, towards zero, before they are added.
  EXPECT_EQ(Sum({{1.0f, 1.0f}, {0x1.8p-12f, 0x1p-13f}, {0x1.8p-12f, 0x1p-13f}}, -1.0f),
            2 * 0x1p-25f);
  EXPECT_EQ(Sum({{1.0f, 1.0f}, {-0x1.8p-12f, 0x1p-13f}, {-0x1.8p-12f, 0x1p-13f}}, -1.0f),
            -2 * 0x1p-25f);
}

TEST(MmaModelTest, AlignsToTheExponentsOfFactorsNotOfProducts) {
  // 1.5 * 1.5 = 2.25 has the exponent 0: terms of 2^-25 still count, though 2.25 is above 2.
  EXPECT_EQ(Sum({{1.5f, 1.5f}, {-1.5f, 1.5f}, {0x1p-12f, 0x1p-13f}}, 0.0f), 0x1p-25f);
  EXPECT_EQ(Sum({{2.0f, 1.0f}, {-2.0f, 1.0f}, {0x1p-12f, 0x1p-13f}}, 0.0f), 0.0f);
}

TEST(MmaModelTest, CancelsAgainstTheAccumulator) {
  EXPECT_EQ(Sum({{-3.0f, 7.0f}}, 21.0f), 0.0f);
  EXPECT_EQ(Bits(Sum({{-3.0f, 7.0f}}, 21.0f)), 0u);
  EXPECT_EQ(Bits(Sum({}, -0.0f)), 0u);
  // The accumulator's own low bits go where a larger product needs the room.
  EXPECT_EQ(Sum({{0x1p3f, 1.0f}, {-0x1p3f, 1.0f}}, 1.0f + 0x1p-23f), 1.0f);
  EXPECT_EQ(Sum({{0x1p2f, 1.0f}, {-0x1p2f, 1.0f}}, 1.0f + 0x1p-23f), 1.0f + 0x1p-23f);
}

TEST(MmaModelTest, ZeroProductsDoNotMatter) {
  EXPECT_EQ(Sum({{0.0f, 0x1p100f}, {0x1p-30f, 0x1p-30f}}, 0.0f), 0x1p-60f);
}

TEST(MmaModelTest, KnowsInfinityAndNan) {
  constexpr uint32_t kNan = 0x7fffffffu;
  EXPECT_EQ(Sum({{kInfinity, 1.0f}}, 0.0f), kInfinity);
  EXPECT_EQ(Sum({{kInfinity, -1.0f}}, 5.0f), -kInfinity);
  EXPECT_EQ(Sum({{1.0f, 1.0f}}, -kInfinity), -kInfinity);
  EXPECT_EQ(Bits(Sum({{kInfinity, 1.0f}, {kInfinity, -1.0f}}, 0.0f)), kNan);
  EXPECT_EQ(Bits(Sum({{kInfinity, 0.0f}}, 0.0f)), kNan);
  EXPECT_EQ(Bits(Sum({{kInfinity, 1.0f}}, -kInfinity)), kNan);
  EXPECT_EQ(Bits(Sum({{std::nanf(""), 1.0f}}, 0.0f)), kNan);
  EXPECT_EQ(Bits(Sum({}, -std::nanf(""))), kNan);
}

TEST(MmaModelTest, OverflowsToInfinityOnlyFromTwoToThe128On) {
  EXPECT_EQ(Sum({{0x1p64f, 0x1p64f}}, 0.0f), kInfinity);
  EXPECT_EQ(Sum({{-0x1p100f, 0x1p100f}}, 0.0f), -kInfinity);
  EXPECT_EQ(Sum({{0x1p64f, 0x1p64f}, {-0x1p64f, 0x1p63f}}, 0.0f), 0x1p127f);
  // Truncation never rounds up to infinity.
  const float largest = std::numeric_limits<float>::max();
  EXPECT_EQ(Sum({{0x1p51f, 0x1.8p52f}}, largest), largest);
}

TEST(MmaModelTest, KnowsSubnormals) {
  EXPECT_EQ(Sum({{0x1p-70f, 0x1p-70f}}, 0.0f), 0x1p-140f);
  EXPECT_EQ(Sum({{0x1p-133f, 1.0f}}, 0x1p-149f), 0x1p-133f + 0x1p-149f);
  // Units are 2^-151 at the least, and results multiples of 2^-149.
  EXPECT_EQ(Sum({{0x1p-75f, 0x1p-75f}}, 0.0f), 0.0f);
  EXPECT_EQ(Sum({{0x1p-75f, 0x1p-75f}, {0x1p-75f, 0x1p-75f}}, 0.0f), 0x1p-149f);
  EXPECT_EQ(Bits(Sum({{-0x1p-75f, 0x1p-75f}}, 0.0f)), 0u);
  // Subnormal halves, and what their exponent of -14 means for the alignment.
  EXPECT_EQ(Sum({{0x1p-24f, 0x1p-24f}}, 0.0f, kHopperMma, MmaInput::kF16), 0x1p-48f);
  EXPECT_EQ(Sum({{0x1p-24f, 1.0f}, {0x1p-20f, 0x1p-20f}}, 0.0f, kHopperMma, MmaInput::kF16),
            0x1p-24f);
}

TEST(MmaModelTest, AmpereAddsTwoHalvesWithTwentyFourBits) {
  EXPECT_EQ(Sum({{1.0f, 1.0f}, {-1.0f, 1.0f}, {0x1p-12f, 0x1p-13f}}, 0.0f, kAmpereMma), 0.0f);
  EXPECT_EQ(Sum({{1.0f, 1.0f}, {-1.0f, 1.0f}, {0x1p-12f, 0x1p-12f}}, 0.0f, kAmpereMma), 0x1p-24f);
  // The first half is rounded to float before the second is added.
  std::vector<std::pair<float, float>> products(9, {0.0f, 0.0f});
  products[0] = {1.0f, 1.0f};
  products[1] = {0x1p-12f, 0x1p-12f};
  products[8] = {-1.0f, 1.0f};
  EXPECT_EQ(Sum(products, 0.0f, kAmpereMma), 0.0f);
  EXPECT_EQ(Sum(products, 0.0f, kHopperMma), 0x1p-24f);
}

// Against float64: 17 terms lose less than one unit of 2^(E - 25) each, the result less than one
// unit in its last place; E is at most the exponent of the largest term.
TEST(MmaModelTest, IsWithinItsErrorBoundOfFloat64) {
  std::mt19937_64 random(7);
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> power(-6, 6);
  for (const MmaInput input : {MmaInput::kBf16, MmaInput::kF16}) {
    for (int round = 0; round < 20000; ++round) {
      uint16_t a[16], b[16];
      const float c = std::ldexp(normal(random), power(random));
      double exact = c, largest = std::fabs(c);
      for (int i = 0; i < 16; ++i) {
        const float x = std::ldexp(normal(random), power(random));
        const float y = normal(random);
        const bool bf16 = input == MmaInput::kBf16;
        a[i] = bf16 ? FloatToBf16(x) : FloatToF16(x);
        b[i] = bf16 ? FloatToBf16(y) : FloatToF16(y);
        const double product = bf16 ? double{Bf16ToFloat(a[i])} * Bf16ToFloat(b[i])
                                    : double{F16ToFloat(a[i])} * F16ToFloat(b[i]);
        exact += product;
        largest = std::max(largest, std::fabs(product));
      }
      const double result = MmaDot(kHopperMma, input, a, b, 16, c);
      const double bound = 17 * largest * 0x1p-25 + std::fabs(exact) * 0x1p-22;
      ASSERT_LE(std::fabs(result - exact), bound) << round;
    }
  }
}

TEST(MmaModelTest, ATileIsItsElements) {
  std::mt19937_64 random(3);
  std::normal_distribution<float> normal;
  uint16_t a[16][16], b[8][16];
  float c[16][8], before[16][8];
  for (auto& row : a) std::ranges::generate(row, [&] { return FloatToBf16(normal(random)); });
  for (auto& row : b) std::ranges::generate(row, [&] { return FloatToBf16(normal(random)); });
  for (auto& row : c) std::ranges::generate(row, [&] { return normal(random); });
  std::copy_n(&c[0][0], 128, &before[0][0]);
  MmaTile(kHopperMma, MmaInput::kBf16, a, b, c);
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 8; ++j) {
      EXPECT_EQ(c[i][j], MmaDot(kHopperMma, MmaInput::kBf16, a[i], b[j], 16, before[i][j]));
    }
  }
}

}  // namespace
}  // namespace tlm::simt
