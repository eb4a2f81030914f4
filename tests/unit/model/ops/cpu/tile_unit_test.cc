#include "tests/support/amx/tile_unit.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tlm {
namespace {

struct Config {
  uint8_t palette = 1;
  std::array<uint8_t, 15> reserved = {};
  std::array<uint16_t, 16> row_bytes = {};
  std::array<uint8_t, 16> rows = {};
};
static_assert(sizeof(Config) == 64);

// Tiles 0, 1 and 2 of 16 rows.
Config ThreeTiles() {
  Config config;
  for (int i = 0; i < 3; ++i) {
    config.row_bytes[i] = 64;
    config.rows[i] = 16;
  }
  return config;
}

#if defined(__x86_64__)
__attribute__((target("fma"))) float HardwareFma(float a, float b, float c) {
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(0x9fc0);  // nearest, subnormals are and become 0
  float result;
  asm volatile("vfmadd231ss %2, %1, %0" : "=x"(result) : "x"(a), "x"(b), "0"(c));
  _mm_setcsr(saved);
  return result;
}

TEST(TileUnitTest, RoundsAsTheProcessorDoesWithoutSubnormals) {
  if (!__builtin_cpu_supports("fma")) GTEST_SKIP() << "this machine has no fused arithmetic";
  std::mt19937_64 random(1);
  const auto bf16 = [&random](uint32_t exponent) {
    return std::bit_cast<float>(static_cast<uint32_t>(random() & 0x807f) << 16 | exponent << 23);
  };
  for (int i = 0; i < 300000; ++i) {
    const uint32_t middle = static_cast<uint32_t>(random() % 254);
    float a = bf16(middle);
    float b = bf16(static_cast<uint32_t>(random() % 255));
    float c = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (i % 3 == 1) {  // about the least normal number
      a = bf16(60 + static_cast<uint32_t>(random() % 8));
      b = bf16(60 + static_cast<uint32_t>(random() % 8));
      c = std::bit_cast<float>(static_cast<uint32_t>(random() & 0x81ffffff));
    }
    if (i % 3 == 2) c = -a * b * (1.0f + 0x1p-20f);
    const float expected = HardwareFma(a, b, c);
    const float actual = EmulatedFma(a, b, c);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(actual));
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(actual), std::bit_cast<uint32_t>(expected))
          << a << " * " << b << " + " << c;
    }
  }
}
#endif

TEST(TileUnitTest, RoundsUpToTheLeastNormalNumberAsIfExponentsHadNoEnd) {
  // 2^-126 - 2^-152 rounds to 2^-126 with 24 bits; 2^-126 - 2^-150 is a number of 24 bits below it.
  EXPECT_EQ(EmulatedFma(-0x1p-76f, 0x1p-76f, 0x1p-126f), 0x1p-126f);
  EXPECT_EQ(EmulatedFma(-0x1p-75f, 0x1p-75f, 0x1p-126f), 0.0f);
  EXPECT_EQ(EmulatedFma(0.5f, 0x1.fffffep-126f, 0.0f), 0.0f);
}

TEST(TileUnitTest, LoadsAndStoresTheConfiguredPart) {
  Config config = ThreeTiles();
  config.rows[0] = 3;
  config.row_bytes[0] = 8;
  EmulateLdTileCfg(&config);
  EXPECT_TRUE(TilesAreConfigured());
  std::array<uint8_t, 64> from;
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint8_t>(i);
  EmulateTileLoad(0, from.data(), 20);
  std::array<uint8_t, 64> to = {};
  EmulateTileStore(0, to.data(), 10);
  for (size_t i = 0; i < to.size(); ++i) {
    const size_t row = i / 10;
    const bool inside = row < 3 && i % 10 < 8;
    EXPECT_EQ(to[i], inside ? row * 20 + i % 10 : 0u) << i;
  }
  EmulateTileRelease();
  EXPECT_FALSE(TilesAreConfigured());
}

TEST(TileUnitTest, MultipliesSignedByUnsignedBytes) {
  const Config config = ThreeTiles();
  EmulateLdTileCfg(&config);
  std::array<int8_t, 1024> a;
  a.fill(-128);
  std::array<uint8_t, 1024> b;
  b.fill(255);
  EmulateTileLoad(1, a.data(), 64);
  EmulateTileLoad(2, b.data(), 64);
  EmulateTileZero(0);
  EmulateTdpBSud(0, 1, 2);
  std::array<int32_t, 256> sums;
  EmulateTileStore(0, sums.data(), 64);
  for (const int32_t sum : sums) EXPECT_EQ(sum, 64 * -128 * 255);
  EmulateTileRelease();
}

using TileUnitDeathTest = ::testing::Test;

TEST(TileUnitDeathTest, FaultsWhereAProcessorDoes) {
  std::array<uint8_t, 1024> memory = {};
  EXPECT_DEATH(EmulateTileLoad(0, memory.data(), 64), "not configured");
  const auto configured = [](Config config) { EmulateLdTileCfg(&config); };
  EXPECT_DEATH(configured(Config{.palette = 2}), "no such palette");
  Config too_many_rows = ThreeTiles();
  too_many_rows.rows[1] = 17;
  EXPECT_DEATH(configured(too_many_rows), "too large");
  Config half_empty = ThreeTiles();
  half_empty.row_bytes[1] = 0;
  EXPECT_DEATH(configured(half_empty), "half an empty tile");
  Config small = ThreeTiles();
  small.rows[1] = 4;
  EXPECT_DEATH((configured(small), EmulateTdpBf16Ps(0, 1, 2)), "do not fit");
  EXPECT_DEATH((configured(ThreeTiles()), EmulateTdpBf16Ps(0, 1, 1)), "used twice");
  EXPECT_DEATH((configured(ThreeTiles()), EmulateTileZero(3)), "without rows");
}

}  // namespace
}  // namespace tlm
