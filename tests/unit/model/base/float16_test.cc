#include "model/base/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tlm {
namespace {

// binary16's value by its definition.
double F16ByDefinition(uint16_t bits) {
  const double sign = bits & 0x8000u ? -1.0 : 1.0;
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  if (exponent == 0) return sign * fraction * std::pow(2.0, -24);
  return sign * (1024 + fraction) * std::pow(2.0, exponent - 25);
}

TEST(Float16Test, EveryFiniteF16HasItsValueAndComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    if (((bits >> 10) & 31) == 31) continue;
    const float value = F16ToFloat(static_cast<uint16_t>(bits));
    ASSERT_EQ(value, F16ByDefinition(static_cast<uint16_t>(bits))) << bits;
    ASSERT_EQ(FloatToF16(value), bits);
  }
}

TEST(Float16Test, F16RoundsToTheNearestTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const double low = F16ByDefinition(static_cast<uint16_t>(bits));
    const double high = F16ByDefinition(static_cast<uint16_t>(bits + 1));
    const float middle = static_cast<float>((low + high) / 2);
    ASSERT_EQ(FloatToF16(middle), bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(FloatToF16(std::nextafter(middle, 0.0f)), bits);
    ASSERT_EQ(FloatToF16(std::nextafter(middle, 1e30f)), bits + 1);
  }
}

TEST(Float16Test, F16SpecialValues) {
  EXPECT_TRUE(std::isinf(F16ToFloat(0x7c00)));
  EXPECT_TRUE(std::isnan(F16ToFloat(0x7c01)));
  EXPECT_EQ(FloatToF16(65519.0f), 0x7bff);
  EXPECT_EQ(FloatToF16(65520.0f), 0x7c00);
  EXPECT_EQ(FloatToF16(-1e30f), 0xfc00);
  EXPECT_TRUE(std::isnan(F16ToFloat(FloatToF16(std::nanf("")))));
}

TEST(Float16Test, Bf16RoundsToTheNearestTiesToEven) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = Bf16ToFloat(static_cast<uint16_t>(bits));
    if (!std::isfinite(value)) continue;
    ASSERT_EQ(FloatToBf16(value), bits);
    const uint32_t tie = (bits << 16) | 0x8000u;
    ASSERT_EQ(FloatToBf16(std::bit_cast<float>(tie)), bits + (bits & 1));
    ASSERT_EQ(FloatToBf16(std::bit_cast<float>(tie - 1)), bits);
    ASSERT_EQ(FloatToBf16(std::bit_cast<float>(tie + 1)), bits + 1);
  }
  EXPECT_TRUE(std::isinf(Bf16ToFloat(FloatToBf16(std::numeric_limits<float>::max()))));
  EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(std::nanf("")))));
}

}  // namespace
}  // namespace tlm
