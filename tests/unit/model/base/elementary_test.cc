#include "model/base/elementary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace tlm {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Distance in units of the last place of the exact value.
double Ulps(double got, long double exact) {
  const double rounded = std::abs(static_cast<double>(exact));
  const double unit = std::nextafter(rounded, kInf) - rounded;
  return static_cast<double>(std::abs(static_cast<long double>(got) - exact)) / unit;
}

TEST(ExpOfNegativeTest, IsWithinAUnitInTheLastPlace) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> exponent(-30.0, 2.84);  // of 10
  for (int i = 0; i < 200000; ++i) {
    const double x = -std::pow(10.0, exponent(random));
    ASSERT_LE(Ulps(ExpOfNegative(x), std::exp(static_cast<long double>(x))), 1.0) << x;
  }
}

TEST(ExpOfNegativeTest, NeverRisesAsItsArgumentFalls) {
  double before = 1.0;
  for (int i = 0; i < 200000; ++i) {
    const double value = ExpOfNegative(-i * 1e-4);
    ASSERT_LE(value, before) << i;
    before = value;
  }
}

TEST(ExpOfNegativeTest, KnowsItsEnds) {
  EXPECT_EQ(ExpOfNegative(0.0), 1.0);
  EXPECT_EQ(ExpOfNegative(-0.0), 1.0);
  EXPECT_GT(ExpOfNegative(-700.0), 0.0);
  EXPECT_EQ(ExpOfNegative(std::nextafter(-700.0, -kInf)), 0.0);
  EXPECT_EQ(ExpOfNegative(-1e300), 0.0);
  EXPECT_EQ(ExpOfNegative(-kInf), 0.0);
}

TEST(LogTest, IsWithinAUnitInTheLastPlace) {
  std::mt19937_64 random(2);
  std::uniform_real_distribution<double> exponent(-300.0, 300.0);
  std::uniform_real_distribution<double> near_one(-52.0, -1.0);
  for (int i = 0; i < 100000; ++i) {
    const double x = std::pow(10.0, exponent(random));
    ASSERT_LE(Ulps(Log(x), std::log(static_cast<long double>(x))), 1.0) << x;
    const double away = std::exp2(near_one(random));
    for (const double y : {1.0 + away, 1.0 - away}) {
      if (y == 1.0) continue;
      ASSERT_LE(Ulps(Log(y), std::log(static_cast<long double>(y))), 1.0) << y;
    }
  }
}

TEST(LogTest, KnowsItsEnds) {
  EXPECT_EQ(Log(1.0), 0.0);
  EXPECT_LE(Ulps(Log(2.0), std::log(2.0L)), 1.0);
  for (const double x : {std::numeric_limits<double>::min(), std::numeric_limits<double>::max()}) {
    EXPECT_LE(Ulps(Log(x), std::log(static_cast<long double>(x))), 1.0) << x;
  }
}

// The bits themselves, so that another compiler or machine that gives others is seen.
TEST(ElementaryTest, GivesTheseBits) {
  uint64_t exponentials = 0;
  uint64_t logarithms = 0;
  for (int i = 1; i <= 10000; ++i) {
    exponentials = exponentials * 31 + DoubleBits(ExpOfNegative(-0.0037 * i));
    logarithms = logarithms * 31 + DoubleBits(Log(0.0037 * i));
  }
  EXPECT_EQ(exponentials, 15511500213891108481u);
  EXPECT_EQ(logarithms, 18215597281967300254u);
}

}  // namespace
}  // namespace tlm
