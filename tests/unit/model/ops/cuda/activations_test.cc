#include "model/ops/cuda/kernels/gemm/activations.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>

#include "model/base/float16.h"

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

// A float of each 16-bit type, and of every 4099th pattern of bits.
void ForArguments(const std::function<void(float)>& use) {
  for (uint32_t bits = 0; bits < 1u << 16; ++bits) {
    use(Bf16ToFloat(static_cast<uint16_t>(bits)));
    use(F16ToFloat(static_cast<uint16_t>(bits)));
  }
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 4099) {
    use(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
}

TEST(ActivationsTest, SiluHasTheBitsOfADivision) {
  ForArguments([](float a) {
    const float small = ExpOfMinus(std::abs(a), 0.0f);
    const float expected = (a < 0.0f ? a * small : a) / (1.0f + small);
    const float actual = Silu(a);
    ASSERT_EQ(std::isnan(actual), std::isnan(expected)) << a;
    if (std::isnan(expected)) return;
    ASSERT_EQ(std::bit_cast<uint32_t>(actual), std::bit_cast<uint32_t>(expected)) << a;
  });
}

TEST(ActivationsTest, ReciprocalsThatErrGiveTheSameQuotients) {
  ForArguments([](float a) {
    if (!IsInExpRange(std::abs(a))) return;
    const float small = ExpOfMinus(std::abs(a), 0.0f);
    const float n = a < 0.0f ? a * small : a;
    const float d = 1.0f + small;
    for (const float towards : {0.0f, 1.0f / d, 2.0f}) {
      const float estimate = std::nextafter(1.0f / d, towards);
      if (std::abs(1.0 / d - estimate) > (d == 1.0f ? 0x1p-23 : 0x1p-24)) continue;
      const float quotient = Quotient(n, d, estimate);
      ASSERT_EQ(std::bit_cast<uint32_t>(quotient), std::bit_cast<uint32_t>(n / d))
          << a << " with " << estimate;
    }
  });
}

// FNV-1a of the bits for every bfloat16 and float16.
uint64_t DigestOf(float (*activation)(float)) {
  uint64_t digest = 14695981039346656037u;
  for (uint32_t bits = 0; bits < 1u << 16; ++bits) {
    for (const float a :
         {Bf16ToFloat(static_cast<uint16_t>(bits)), F16ToFloat(static_cast<uint16_t>(bits))}) {
      const float value = activation(a);
      if (std::isnan(value)) continue;
      digest = (digest ^ std::bit_cast<uint32_t>(value)) * 1099511628211u;
    }
  }
  return digest;
}

// Streams of older servers go on here.
TEST(ActivationsTest, BitsStayWhatTheyAre) {
  EXPECT_EQ(DigestOf(Silu), 5115158543192494376u);
  EXPECT_EQ(DigestOf(GeluTanh), 29092957575900415u);
  EXPECT_EQ(DigestOf(Gelu), 17427727358528757820u);
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
