// Conversions of integers in blocks to bfloat16 against what model/tensor/blocks.h defines.
#include "model/ops/cuda/kernels/gemm/block_values.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "model/base/float16.h"
#include "model/tensor/blocks.h"
#include "model/tensor/fp8.h"

namespace tlm::simt {
namespace {

using Elements = std::array<uint16_t, 8>;  // of a lane and unit: [step][pair][place]

// The elements of integers (below 2^bits) by a conversion.
Elements Convert(const StripFormat& format, Conversion conversion, int unit,
                 const std::array<uint8_t, 8>& q, const StepScale (&scales)[2]) {
  UnitBits bits{};
  for (int step = 0; step < 2; ++step) {
    for (int i = 0; i < 4; ++i) {
      const uint32_t value = q[4 * step + i];
      if (format.low_bits == 8) {
        bits.low[step] |= value << (8 * i);
        continue;
      }
      const int byte = format.BytePlace(step, i);
      bits.low[0] |= (value & 15) << (byte + i / 2 * 4);
      if (format.high_bits > 0) {
        bits.high |= value >> 4 << (byte + format.HighPlace(2 * unit + step, i));
      }
    }
  }
  bits.low[1] = format.low_bits == 8 ? bits.low[1] : bits.low[0];
  uint32_t pairs[2][2];
  UnitPairs(format, conversion, bits, unit, UnitScaleOf(format, conversion, scales), pairs);
  Elements result;
  for (size_t i = 0; i < 8; ++i) {
    result[i] = static_cast<uint16_t>(pairs[i / 4][i / 2 % 2] >> (16 * (i % 2)));
  }
  return result;
}

// Every integer of `format`, eight at a time, with these scales.
void ExpectSpecified(const StripFormat& format, Conversion conversion,
                     const StepScale (&scales)[2]) {
  const int bits = format.low_bits + format.high_bits;
  for (int first = 0; first < 1 << bits; first += 8) {
    std::array<uint8_t, 8> q;
    // In any order: neighbours in a word differ.
    for (int i = 0; i < 8; ++i) q[i] = static_cast<uint8_t>(first + (i ^ 5));
    const int unit = first / 8 % kSpanUnits;
    const Elements actual = Convert(format, conversion, unit, q, scales);
    for (size_t i = 0; i < 8; ++i) {
      const bool two = format.scales == BlockScales::kTwoFactors;
      const StepScale& scale = scales[two ? i / 4 : 0];
      float element = 0.0f;
      if (format.scales == BlockScales::kFloatElements) {
        if ((q[i] & 0x7f) == kFp8NaN) continue;
        element = Fp8Value(q[i]) * scale.scale;
      } else {
        const int integer = format.has_values ? kIq4NlValues[q[i]] + 128 : q[i];
        element = static_cast<float>(integer - scale.zero) * scale.scale;
        element = element - scale.min;
      }
      const uint16_t expected = FloatToBf16(element);
      // Zeros may differ in their sign.
      if ((expected & 0x7fff) == 0 && (actual[i] & 0x7fff) == 0) continue;
      ASSERT_EQ(actual[i], expected) << "q " << int{q[i]} << " zero " << scale.zero << " scale "
                                     << std::hexfloat << scale.scale << " min " << scale.min;
    }
  }
}

std::vector<float> FiniteHalves() {
  std::vector<float> halves;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    if ((bits & 0x7c00) != 0x7c00) halves.push_back(F16ToFloat(static_cast<uint16_t>(bits)));
  }
  return halves;
}
float RandomHalf(std::mt19937_64& random) {
  return F16ToFloat(static_cast<uint16_t>(random() & 0xbbff));
}
// Any finite float, subnormal ones as often as others of an exponent.
float RandomFloat(std::mt19937_64& random, int most_exponent) {
  const uint32_t exponent = static_cast<uint32_t>(random() % static_cast<uint64_t>(most_exponent));
  return FloatOfBits((static_cast<uint32_t>(random()) & 0x807fffffu) | exponent << 23);
}

TEST(BlockValuesTest, HalfScalesAreExactInPairs) {
  const std::vector<float> halves = FiniteHalves();
  for (const int high_bits : {0, 1}) {
    const StripFormat format = StripFormatOf(4, high_bits, BlockScales::kHalf, false, 0);
    ASSERT_EQ(FastConversion(format), Conversion::kPacked);
    for (const float scale : halves) {
      const StepScale scales[2] = {{scale, 0.0f, format.zero}, {}};
      ExpectSpecified(format, Conversion::kPacked, scales);
      if (HasFatalFailure()) return;
    }
  }
}

// Scales of 11 significant bits, with any zero that pairs take.
TEST(BlockValuesTest, ShortScalesAreExactInPairs) {
  const StripFormat format = StripFormatOf(4, 0, BlockScales::kFloat, false, 7);
  const std::vector<float> halves = FiniteHalves();
  for (int zero = 0; zero < 32; ++zero) {
    for (const float scale : halves) {
      const StepScale scales[2] = {{scale, 0.0f, zero}, {}};
      ASSERT_TRUE(TakesFast(format, scales[0])) << scale;
      ExpectSpecified(format, Conversion::kPacked, scales);
      if (HasFatalFailure()) return;
    }
  }
  std::mt19937_64 random(1);
  for (int i = 0; i < 100000; ++i) {
    const float scale = FloatOfBits(FloatBits(RandomFloat(random, 250)) & ~0x1fffu);
    const StepScale scales[2] = {{scale, 0.0f, static_cast<int>(random() % 32)}, {}};
    if (!TakesFast(format, scales[0])) {
      ASSERT_LT(std::fabs(scale), 0x1p-120f);
      continue;
    }
    ExpectSpecified(format, Conversion::kPacked, scales);
    if (HasFatalFailure()) return;
  }
}

TEST(BlockValuesTest, OtherScalesAreNotTakenFast) {
  const StripFormat four = StripFormatOf(4, 0, BlockScales::kFloat, false, 7);
  EXPECT_TRUE(TakesFast(four, {0.0f, 0.0f, 15}));
  EXPECT_TRUE(TakesFast(four, {1.0f + 0x1p-10f, 0.0f, 15}));
  EXPECT_FALSE(TakesFast(four, {1.0f + 0x1p-11f, 0.0f, 15}));
  EXPECT_FALSE(TakesFast(four, {1.0f, 0.0f, 32}));
  EXPECT_FALSE(TakesFast(four, {0x1p-121f, 0.0f, 8}));
  EXPECT_FALSE(TakesFast(four, {0x1p-140f, 0.0f, 8}));
  const StripFormat eight = StripFormatOf(8, 0, BlockScales::kFloat, false, 7);
  EXPECT_TRUE(TakesFast(eight, {0.0f, 0.0f, 128}));
  EXPECT_TRUE(TakesFast(eight, {1.0f + 0x1p-10f, 0.0f, 128}));
  EXPECT_FALSE(TakesFast(eight, {1.0f + 0x1p-10f, 0.0f, 127}));
  EXPECT_FALSE(TakesFast(eight, {0x1p120f, 0.0f, 128}));
}

TEST(BlockValuesTest, HalfScalesOfBytesAndOfValuesAreFused) {
  const std::vector<float> halves = FiniteHalves();
  for (const StripFormat& format : {StripFormatOf(8, 0, BlockScales::kHalf, false, 0),
                                    StripFormatOf(4, 0, BlockScales::kHalf, true, 0)}) {
    ASSERT_EQ(FastConversion(format), Conversion::kFused);
    for (const float scale : halves) {
      const StepScale scales[2] = {{scale, 0.0f, format.zero}, {}};
      ExpectSpecified(format, Conversion::kFused, scales);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(BlockValuesTest, FactorsOfSixBitIntegersAreFused) {
  const StripFormat format = StripFormatOf(4, 2, BlockScales::kTwoFactors, false, 0);
  ASSERT_EQ(FastConversion(format), Conversion::kFused);
  std::mt19937_64 random(2);
  for (int i = 0; i < 4000; ++i) {
    const float d = RandomHalf(random);
    for (int s = -128; s < 128; s += 2) {
      const StepScale scales[2] = {{d * static_cast<float>(s), 0.0f, 32},
                                   {d * static_cast<float>(s + 1), 0.0f, 32}};
      ExpectSpecified(format, Conversion::kFused, scales);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(BlockValuesTest, MinimaAreSubtractedFromExactProducts) {
  std::mt19937_64 random(3);
  for (const BlockScales kind : {BlockScales::kHalfMin, BlockScales::kFactorMin}) {
    for (const int high_bits : {0, 1}) {
      const StripFormat format = StripFormatOf(4, high_bits, kind, false, 0);
      ASSERT_EQ(FastConversion(format), Conversion::kMin);
      for (int i = 0; i < 200000; ++i) {
        StepScale scales[2] = {{RandomHalf(random), RandomHalf(random), 0}, {}};
        if (kind == BlockScales::kFactorMin) {
          scales[0].scale *= static_cast<float>(random() % 64);
          scales[0].min *= static_cast<float>(random() % 64);
        }
        ExpectSpecified(format, Conversion::kMin, scales);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Scales of float32, also subnormal and so large that elements overflow.
TEST(BlockValuesTest, AnyScaleAndZeroIsRoundedTwice) {
  std::mt19937_64 random(4);
  for (const int low_bits : {4, 8}) {
    const StripFormat format = StripFormatOf(low_bits, 0, BlockScales::kFloat, false, 7);
    for (int i = 0; i < 20000; ++i) {
      uint32_t scale = FloatBits(RandomFloat(random, 255));
      // Of as many significant bits as the fused subtrahend may or may not have.
      if (i % 2 == 0) scale &= ~((1u << random() % 24) - 1);
      const StepScale scales[2] = {
          {FloatOfBits(scale), 0.0f, i % 3 == 0 ? 128 : static_cast<int>(random() % 256)}, {}};
      ExpectSpecified(format, Conversion::kGeneral, scales);
      if (TakesFast(format, scales[0])) ExpectSpecified(format, FastConversion(format), scales);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(BlockValuesTest, FloatsOfEightBitsAreWidened) {
  const StripFormat format = StripFormatOf(8, 0, BlockScales::kFloatElements, false, 7);
  std::mt19937_64 random(5);
  for (int i = 0; i < 20000; ++i) {
    const StepScale scales[2] = {{RandomFloat(random, 245), 0.0f, 0}, {}};
    ExpectSpecified(format, Conversion::kFloats, scales);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace tlm::simt
