// The 8-bit format of keys and values against the values that its definition lists.
#include "model/tensor/fp8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/base/float16.h"

namespace tlm {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// The magnitude of code 0 .. 0x7e as OCP's 8-bit floating-point specification 1.0 has it.
double ListedValue(int code) {
  const int exponent = code >> 3;
  const int fraction = code & 7;
  return exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
}

uint8_t ScaleOfLargest(float largest) { return Fp8ScaleOf(Fp8BitsOf(largest) & 0x7fffffffu); }

TEST(Fp8Test, ElementsHaveTheValuesOfTheFormat) {
  for (int code = 0; code < 0x7f; ++code) {
    EXPECT_EQ(Fp8Value(static_cast<uint8_t>(code)), ListedValue(code)) << code;
    EXPECT_EQ(Fp8Value(static_cast<uint8_t>(0x80 | code)), -ListedValue(code)) << code;
  }
  EXPECT_TRUE(std::signbit(Fp8Value(0x80)));
  EXPECT_TRUE(std::isnan(Fp8Value(0x7f)));
  EXPECT_TRUE(std::isnan(Fp8Value(0xff)));
}

TEST(Fp8Test, RoundsToTheNearestAndTiesToEven) {
  for (int code = 0; code < 0x7e; ++code) {
    const double low = ListedValue(code);
    const double high = ListedValue(code + 1);
    const auto middle = static_cast<float>((low + high) / 2);
    for (const int sign : {0, 0x80}) {
      const float factor = sign == 0 ? 1.0f : -1.0f;
      EXPECT_EQ(Fp8Of(factor * static_cast<float>(low)), sign | code);
      EXPECT_EQ(Fp8Of(factor * std::nextafter(middle, 0.0f)), sign | code) << code;
      EXPECT_EQ(Fp8Of(factor * middle), sign | (code % 2 == 0 ? code : code + 1)) << code;
      EXPECT_EQ(Fp8Of(factor * std::nextafter(middle, 1e9f)), sign | (code + 1)) << code;
    }
  }
}

TEST(Fp8Test, SaturatesWhatIsFiniteAndKeepsWhatIsNot) {
  for (const float large : {448.0f, 464.0f, 480.0f, 1e9f, 3e38f}) {
    EXPECT_EQ(Fp8Of(large), 0x7e) << large;
    EXPECT_EQ(Fp8Of(-large), 0xfe) << large;
  }
  EXPECT_EQ(Fp8Of(kInfinity), 0x7f);
  EXPECT_EQ(Fp8Of(-kInfinity), 0xff);
  EXPECT_EQ(Fp8Of(kNaN) & 0x7f, 0x7f);
}

TEST(Fp8Test, TheLargestMagnitudeIsScaledTo128AndMore) {
  for (int exponent = -149; exponent <= 127; ++exponent) {
    const float power = std::ldexp(1.0f, exponent);
    const int expected = std::clamp(exponent - 7, kFp8MinExponent, kFp8MaxExponent);
    for (const float largest : {power, std::nextafter(2.0f * power, 0.0f)}) {
      // The greatest subnormals are less than a power of their own below.
      if (exponent < -126 && largest != power) continue;
      EXPECT_EQ(ScaleOfLargest(largest), expected + 127) << largest;
    }
  }
  EXPECT_EQ(ScaleOfLargest(0.0f), kFp8MinExponent + 127);
  EXPECT_EQ(ScaleOfLargest(kInfinity), kFp8MaxExponent + 127);
  EXPECT_EQ(ScaleOfLargest(kNaN), kFp8MaxExponent + 127);
}

TEST(Fp8Test, WhatIsStoredIsExactInSixteenBits) {
  for (int exponent = kFp8MinExponent; exponent <= kFp8MaxExponent; ++exponent) {
    const auto scale = static_cast<uint8_t>(exponent + 127);
    EXPECT_EQ(Fp8Scale(scale), std::ldexp(1.0f, exponent));
    EXPECT_EQ(Fp8InverseScale(scale), std::ldexp(1.0f, -exponent));
    for (int code = 0; code < 0x7f; ++code) {
      const float value = Fp8Value(static_cast<uint8_t>(code)) * Fp8Scale(scale);
      EXPECT_EQ(value, std::ldexp(ListedValue(code), exponent));
      EXPECT_EQ(Bf16ToFloat(FloatToBf16(value)), value);
      EXPECT_EQ(F16ToFloat(FloatToF16(value)), value);
      EXPECT_TRUE(value == 0.0f || std::isnormal(value));
    }
  }
}

}  // namespace
}  // namespace tlm
