#include "model/ops/cuda/kernels/activations.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

namespace tlm::simt {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Relative to the float64 value, for |a| from 2^-20 to where e^-|a| is below 2^-100.
void ExpectClose(float (*activation)(float), const std::function<double(double)>& exact, float most,
                 double units) {
  for (float a = 0x1p-20f; a < most; a *= 1.0009f) {
    for (const float signed_a : {a, -a}) {
      const double expected = exact(signed_a);
      ASSERT_NEAR(activation(signed_a), expected, units * 0x1p-24 * std::abs(expected)) << signed_a;
    }
  }
}

TEST(ActivationsTest, SiluIsClose) {
  ExpectClose(
      Silu, [](double a) { return a / (1.0 + std::exp(-a)); }, 69.0f, 6.0);
}
TEST(ActivationsTest, GeluTanhIsClose) {
  // tanh(u) near -1 has lost its digits: 1 + tanh(u) = 2 / (1 + e^-2u) has not.
  ExpectClose(
      GeluTanh,
      [](double a) {
        const double u = std::sqrt(2.0 / M_PI) * (a + 0.044715 * a * a * a);
        return a / (1.0 + std::exp(-2.0 * u));
      },
      9.0f, 6.0);
}
TEST(ActivationsTest, GeluIsClose) {
  ExpectClose(
      Gelu, [](double a) { return a / 2.0 * std::erfc(-a / std::sqrt(2.0)); }, 11.0f, 10.0);
}
TEST(ActivationsTest, ReluIsExact) {
  EXPECT_EQ(Relu(1.5f), 1.5f);
  EXPECT_EQ(Relu(-1.5f), 0.0f);
}

TEST(ActivationsTest, LargeMagnitudesAreTheLimits) {
  for (float (*const activation)(float) : {Silu, GeluTanh, Gelu}) {
    EXPECT_EQ(activation(0.0f), 0.0f);
    EXPECT_EQ(activation(200.0f), 200.0f);
    EXPECT_EQ(activation(3e38f), 3e38f);
    EXPECT_EQ(activation(kInfinity), kInfinity);
    EXPECT_EQ(activation(-200.0f), 0.0f);
  }
}

TEST(ActivationsTest, NaNStaysNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (float (*const activation)(float) : {Silu, Relu, GeluTanh, Gelu}) {
    EXPECT_TRUE(std::isnan(activation(nan)));
  }
}

}  // namespace
}  // namespace tlm::simt
