#include "model/tensor/quantise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace tlm {
namespace {

constexpr DType kFourBits[] = {DType::kI4G32, DType::kI4G64, DType::kI4G128, DType::kI4G256};
constexpr DType kEightBits[] = {DType::kI8G32, DType::kI8G64, DType::kI8G128, DType::kI8G256};

std::vector<float> RandomValues(std::mt19937& random, size_t count, float scale) {
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<float> RandomImportance(std::mt19937& random, size_t count) {
  std::vector<float> importance = RandomValues(random, count, 1.0f);
  for (float& value : importance) value = std::exp(2 * value);
  return importance;
}

// Of these integers, as blocks.h defines an element.
double ErrorOf(const std::vector<float>& x, const std::vector<float>& importance,
               const BlockValues& block) {
  double error = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double difference =
        double{x[i]} - static_cast<float>(block.q[i] - block.zero) * block.scale;
    error += (importance.empty() ? 1.0 : double{importance[i]}) * difference * difference;
  }
  return error;
}

BlockValues Quantised(DType type, const std::vector<float>& x,
                      const std::vector<float>& importance = {}) {
  BlockValues block;
  std::memset(&block, 0xaa, sizeof(block));
  EXPECT_TRUE(QuantiseBlock(type, x.data(), static_cast<int64_t>(x.size()),
                            importance.empty() ? nullptr : importance.data(), &block));
  return block;
}

// Four bits with zero = 8 and scale = max |x| / 7.
BlockValues RoundedToNearest(const std::vector<float>& x) {
  float largest = 0;
  for (const float value : x) largest = std::max(largest, std::abs(value));
  BlockValues block;
  block.zero = 8;
  block.scale = largest / 7;
  for (size_t i = 0; i < x.size(); ++i) {
    block.q[i] = static_cast<uint8_t>(8 + std::nearbyint(x[i] * (7 / largest)));
  }
  return block;
}

// The least error over all zeros and scales: integers change only where x / scale passes a half, so
// the best scale of the integers between each two such places is one of all that can be best.
double LeastError(const std::vector<float>& x, const std::vector<float>& importance) {
  const auto weight = [&](size_t i) { return importance.empty() ? 1.0 : double{importance[i]}; };
  double squares = 0;
  for (size_t i = 0; i < x.size(); ++i) squares += weight(i) * x[i] * x[i];
  double least = squares;
  for (int zero = 0; zero <= 15; ++zero) {
    std::vector<double> places = {1e-30};  // of 1 / scale
    for (const float value : x) {
      for (int step = -zero; step < 15 - zero; ++step) {
        const double place = (step + 0.5) / value;
        if (place > 0) places.push_back(place);
      }
    }
    std::sort(places.begin(), places.end());
    places.push_back(2 * places.back());
    for (size_t p = 1; p < places.size(); ++p) {
      const double inverse = (places[p - 1] + places[p]) / 2;
      double product = 0, square = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        const double q = std::clamp<double>(std::nearbyint(x[i] * inverse), -zero, 15 - zero);
        product += weight(i) * x[i] * q;
        square += weight(i) * q * q;
      }
      if (square > 0) least = std::min(least, squares - product * product / square);
    }
  }
  return least;
}

TEST(QuantiseTest, EightBitsAreTheNearestInStepsOfTheLargest) {
  std::mt19937 random(1);
  for (const DType type : kEightBits) {
    const std::vector<float> x = RandomValues(random, BlockOf(type).elements, 0.02f);
    const BlockValues block = Quantised(type, x);
    float largest = 0;
    for (const float value : x) largest = std::max(largest, std::abs(value));
    EXPECT_EQ(block.zero, 128);
    EXPECT_EQ(block.min, 0.0f);
    EXPECT_EQ(block.scale, largest / 127.0f);
    for (size_t i = 0; i < x.size(); ++i) {
      const float product = x[i] * (127.0f / largest);
      ASSERT_EQ(block.q[i], 128 + static_cast<int>(std::nearbyint(product))) << i;
    }
  }
}

TEST(QuantiseTest, WhatFourBitsCanMeanStays) {
  std::mt19937 random(2);
  for (const DType type : kFourBits) {
    for (int zero = 0; zero <= 15; ++zero) {
      std::vector<float> x(BlockOf(type).elements);
      for (size_t i = 0; i < x.size(); ++i) {
        const int q = i < 16 ? static_cast<int>(i) : static_cast<int>(random() % 16);
        x[i] = static_cast<float>(q - zero) * 0.25f;
      }
      const BlockValues block = Quantised(type, x);
      EXPECT_EQ(block.scale, 0.25f);
      EXPECT_EQ(block.zero, zero);
      EXPECT_EQ(ErrorOf(x, {}, block), 0.0) << DTypeName(type) << " " << zero;
    }
  }
}

TEST(QuantiseTest, NeverWorseThanTheNearest) {
  std::mt19937 random(3);
  for (int i = 0; i < 4000; ++i) {
    const DType type = kFourBits[i % 4];
    const size_t count = 1 + random() % BlockOf(type).elements;
    std::vector<float> x = RandomValues(random, count, 1.0f);
    for (float& value : x) value = std::ldexp(value * value * value, i % 60 - 30);
    const std::vector<float> importance =
        i % 3 == 0 ? std::vector<float>() : RandomImportance(random, count);
    const double nearest = ErrorOf(x, importance, RoundedToNearest(x));
    const double squares = ErrorOf(x, importance, BlockValues{});
    ASSERT_LE(ErrorOf(x, importance, Quantised(type, x, importance)),
              nearest * 1.00001 + squares * 1e-12)
        << i;
  }
}

// Sums over many blocks: a search may miss the least of a single one.
TEST(QuantiseTest, CloseToTheLeastError) {
  std::mt19937 random(4);
  for (const bool weighted : {false, true}) {
    for (const size_t count : {6, 32}) {
      double least = 0, found = 0, nearest = 0;
      for (int i = 0; i < 200; ++i) {
        const std::vector<float> x = RandomValues(random, count, 1.0f);
        const std::vector<float> importance =
            weighted ? RandomImportance(random, count) : std::vector<float>();
        const double best = LeastError(x, importance);
        const double error = ErrorOf(x, importance, Quantised(DType::kI4G32, x, importance));
        ASSERT_GE(error, best * 0.9999 - 1e-12);
        least += best;
        found += error;
        nearest += ErrorOf(x, importance, RoundedToNearest(x));
      }
      EXPECT_LE(found, least * (count == 32 ? 1.2 : 1.5)) << count << " " << weighted;
      EXPECT_LE(found, nearest * 0.75) << count << " " << weighted;
    }
  }
}

TEST(QuantiseTest, ImportantValuesComeCloser) {
  std::mt19937 random(5);
  double plain = 0, weighted = 0;
  for (int i = 0; i < 300; ++i) {
    const std::vector<float> x = RandomValues(random, 128, 1.0f);
    std::vector<float> importance = RandomImportance(random, 128);
    plain += ErrorOf(x, importance, Quantised(DType::kI4G128, x));
    const BlockValues block = Quantised(DType::kI4G128, x, importance);
    weighted += ErrorOf(x, importance, block);
    // A common factor does not matter.
    for (float& value : importance) value = std::ldexp(value, i % 100 - 50);
    const BlockValues scaled = Quantised(DType::kI4G128, x, importance);
    ASSERT_EQ(block.scale, scaled.scale);
    ASSERT_EQ(block.zero, scaled.zero);
    ASSERT_EQ(std::memcmp(block.q, scaled.q, 128), 0);
  }
  EXPECT_LT(weighted, 0.95 * plain);
}

TEST(QuantiseTest, EqualImportanceIsNone) {
  std::mt19937 random(6);
  for (const DType type : kFourBits) {
    const std::vector<float> x = RandomValues(random, BlockOf(type).elements, 1.0f);
    const BlockValues plain = Quantised(type, x);
    for (const float equal : {0.0f, 1.0f, 0x1p40f, 0x1p-120f}) {
      const BlockValues block = Quantised(type, x, std::vector<float>(x.size(), equal));
      EXPECT_EQ(block.scale, plain.scale) << equal;
      EXPECT_EQ(std::memcmp(block.q, plain.q, x.size()), 0) << equal;
    }
  }
}

TEST(QuantiseTest, PaddingIsZero) {
  std::mt19937 random(7);
  for (const auto types : {kFourBits, kEightBits}) {
    for (int t = 0; t < 4; ++t) {
      const size_t elements = BlockOf(types[t]).elements;
      for (const size_t count : {size_t{1}, size_t{15}, size_t{17}, elements - 1, elements}) {
        const std::vector<float> x = RandomValues(random, count, 1.0f);
        const BlockValues block = Quantised(types[t], x);
        for (size_t i = count; i < elements; ++i) ASSERT_EQ(block.q[i], block.zero) << i;
      }
    }
  }
}

TEST(QuantiseTest, SmallBlocksMeanZeros) {
  for (const DType type : {DType::kI4G32, DType::kI8G256}) {
    for (const float largest : {0.0f, -0.0f, 0x1p-149f, std::nextafter(0x1p-100f, 0.0f)}) {
      const BlockValues block = Quantised(type, {largest, -largest, 0.0f});
      EXPECT_EQ(block.scale, 0.0f);
      EXPECT_EQ(block.q[0], block.zero);
      EXPECT_EQ(block.q[1], block.zero);
    }
    const BlockValues block = Quantised(type, {0x1p-100f});
    EXPECT_NEAR((block.q[0] - block.zero) * double{block.scale} * 0x1p100, 1.0, 1e-6);
  }
}

TEST(QuantiseTest, ValuesOfEveryMagnitude) {
  for (int exponent = -100; exponent <= 127; ++exponent) {
    const float unit = std::ldexp(1.0f, exponent);
    const BlockValues block = Quantised(DType::kI4G32, {unit, -0.4f * unit, 0.1f * unit});
    const double one = (block.q[0] - block.zero) * double{block.scale};
    ASSERT_NEAR(std::ldexp(one, -exponent), 1.0, 0.02) << exponent;
  }
}

TEST(QuantiseTest, ValuesThatAreNotFiniteAreRefused) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const DType type : {DType::kI4G64, DType::kI8G64}) {
    for (const float bad : {infinity, -infinity, std::nanf("")}) {
      for (const size_t at : {0, 20}) {
        std::vector<float> x(21, 1.0f);
        x[at] = bad;
        BlockValues block;
        EXPECT_FALSE(QuantiseBlock(type, x.data(), 21, nullptr, &block));
        EXPECT_TRUE(std::isnan(block.scale));
        EXPECT_EQ(block.q[at], block.zero);
      }
    }
  }
}

}  // namespace
}  // namespace tlm
