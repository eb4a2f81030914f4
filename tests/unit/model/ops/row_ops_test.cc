// Norms and activations, which work on one row at a time, against double precision.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/unit/model/ops/ops_fixture.h"

namespace tlm {
namespace {

// The distance of a float to the next: relative errors are counted in these.
constexpr double kUlp = std::numeric_limits<float>::epsilon();

double NormOf(double mean_square, double eps, EpsPlacement placement) {
  return placement == EpsPlacement::kInsideRoot ? std::sqrt(mean_square + eps)
                                                : std::sqrt(mean_square) + eps;
}

struct EpsCase {
  float eps;
  EpsPlacement placement;
};
// Also an eps that outweighs the row: only then does its place show.
constexpr EpsCase kEpsCases[] = {{1e-5f, EpsPlacement::kInsideRoot},
                                 {1e-5f, EpsPlacement::kOutsideRoot},
                                 {0.3f, EpsPlacement::kInsideRoot},
                                 {0.3f, EpsPlacement::kOutsideRoot}};

TEST_P(OpsTest, RmsNormNormalisesEveryGroup) {
  for (const auto& [eps, placement] : kEpsCases) {
    for (const int64_t group : {1, 4, 20, 33, 64}) {
      const int64_t cols = 3 * group;
      std::vector<float> in = RandomFloats(5 * cols, 7);
      const std::vector<float> gain = RandomFloats(group, 8);
      std::vector<float> out(in.size());
      ASSERT_THAT(
          ops_->RmsNorm(AsRows(in, cols), group, gain.data(), eps, placement, AsRows(out, cols)),
          IsOk());
      for (int64_t begin = 0; begin < static_cast<int64_t>(in.size()); begin += group) {
        double squares = 0.0;
        for (int64_t j = 0; j < group; ++j) squares += std::pow(in[begin + j], 2.0);
        const double norm = NormOf(squares / static_cast<double>(group), eps, placement);
        for (int64_t j = 0; j < group; ++j) {
          const double expected = in[begin + j] / norm * gain[j];
          ASSERT_NEAR(out[begin + j], expected, 16 * kUlp * std::abs(expected));
        }
      }
      ASSERT_THAT(
          ops_->RmsNorm(AsRows(in, cols), group, gain.data(), eps, placement, AsRows(in, cols)),
          IsOk());
      EXPECT_EQ(in, out) << "in place";
    }
  }
}

TEST_P(OpsTest, LayerNormCentresAndScalesEveryRow) {
  for (const auto& [eps, placement] : kEpsCases) {
    for (const int64_t cols : {1, 4, 20, 33, 768}) {
      std::vector<float> in = RandomFloats(5 * cols, 7);
      // A mean that a variance taken as E(x^2) - E(x)^2 would drown in.
      for (float& value : in) value += 100.0f;
      const std::vector<float> gain = RandomFloats(cols, 8), bias = RandomFloats(cols, 9);
      std::vector<float> out(in.size());
      ASSERT_THAT(ops_->LayerNorm(AsRows(in, cols), gain.data(), bias.data(), eps, placement,
                                  AsRows(out, cols)),
                  IsOk());
      for (int64_t begin = 0; begin < static_cast<int64_t>(in.size()); begin += cols) {
        double mean = 0.0, variance = 0.0;
        for (int64_t j = 0; j < cols; ++j) mean += in[begin + j] / static_cast<double>(cols);
        for (int64_t j = 0; j < cols; ++j) {
          variance += std::pow(in[begin + j] - mean, 2.0) / static_cast<double>(cols);
        }
        const double norm = NormOf(variance, eps, placement);
        for (int64_t j = 0; j < cols; ++j) {
          const double expected = (in[begin + j] - mean) / norm * gain[j] + bias[j];
          // The mean, near 100, is off by up to that many rounding errors over the norm.
          const double tolerance = 16 * kUlp * (100.0 / norm * std::abs(gain[j]) + 1.0);
          ASSERT_NEAR(out[begin + j], expected, tolerance) << cols << " columns";
        }
      }
      ASSERT_THAT(ops_->LayerNorm(AsRows(in, cols), gain.data(), bias.data(), eps, placement,
                                  AsRows(in, cols)),
                  IsOk());
      EXPECT_EQ(in, out) << "in place";
    }
  }
}

TEST_P(OpsTest, SwiGluHoldsFromTheSmallestToTheLargestGate) {
  std::vector<float> gate_up = RandomFloats(2 * 2 * 37, 9, 4.0f);
  const float extremes[] = {0.0f, -0.0f, 88.0f, -88.0f, 1000.0f, -1000.0f, 3e38f, -3e38f, 1e-30f};
  std::copy(std::begin(extremes), std::end(extremes), gate_up.begin());
  std::vector<float> out(2 * 37);
  ASSERT_THAT(ops_->SwiGlu(AsRows(gate_up, 74), AsRows(out, 37)), IsOk());
  for (int64_t row = 0; row < 2; ++row) {
    for (int64_t j = 0; j < 37; ++j) {
      const double gate = gate_up[row * 74 + j];
      const double expected = gate / (1.0 + std::exp(-gate)) * gate_up[row * 74 + 37 + j];
      if (std::abs(expected) > std::numeric_limits<float>::max()) {
        ASSERT_TRUE(std::isinf(out[row * 37 + j]));
        continue;
      }
      ASSERT_NEAR(out[row * 37 + j], expected, 1e-6 * std::abs(expected) + 1e-35) << gate;
    }
  }
}

double Exact(Activation activation, double a) {
  switch (activation) {
    case Activation::kSilu:
      return a / (1.0 + std::exp(-a));
    case Activation::kRelu:
      return std::max(a, 0.0);
    case Activation::kGeluTanh:
      // 1 + tanh(u) = 2 / (1 + e^-2u), which keeps its digits where tanh is near -1.
      return a / (1.0 + std::exp(-2.0 * std::sqrt(2.0 / M_PI) * (a + 0.044715 * a * a * a)));
    case Activation::kGelu:
      return a / 2.0 * std::erfc(-a / std::sqrt(2.0));
  }
  return 0.0;
}

constexpr Activation kActivations[] = {Activation::kSilu, Activation::kRelu, Activation::kGeluTanh,
                                       Activation::kGelu};

TEST_P(OpsTest, ActivationsKeepTheirDigitsEverywhere) {
  std::vector<float> in = {0.0f,   -0.0f,   1e-30f, -1e-30f,  1e-10f, -1e-10f, 80.0f,
                           -80.0f, 1000.0f, 3e38f,  -1000.0f, -3e38f, 14.0f,   -14.0f};
  for (float a = -16.0f; a < 16.0f; a += 0.00037f) in.push_back(a);
  for (const Activation activation : kActivations) {
    std::vector<float> out = in;
    const int64_t cols = static_cast<int64_t>(in.size());
    ASSERT_THAT(ops_->Activate(activation, AsRows(out, cols)), IsOk());
    double worst = 0.0;
    for (int64_t i = 0; i < cols; ++i) {
      const double expected = Exact(activation, in[i]);
      // Below 1e-36 the exponential is taken for 0.
      const double error = std::max(0.0, std::abs(out[i] - expected) - 1e-35);
      ASSERT_LE(error, 6 * kUlp * std::abs(expected))
          << "activation " << static_cast<int>(activation) << " of " << in[i];
      if (expected != 0.0) worst = std::max(worst, error / std::abs(expected) / kUlp);
    }
    RecordProperty("worst_ulps_" + std::to_string(static_cast<int>(activation)),
                   std::to_string(worst));
  }
}

TEST_P(OpsTest, ActivationsDoNotDependOnTheColumn) {
  const std::vector<float> values = RandomFloats(64, 3, 3.0f);
  for (const Activation activation : kActivations) {
    std::vector<float> whole = values;
    ASSERT_THAT(ops_->Activate(activation, AsRows(whole, 64)), IsOk());
    for (const int64_t cols : {1, 2, 4, 8, 16, 32}) {
      std::vector<float> cut = values;
      ASSERT_THAT(ops_->Activate(activation, AsRows(cut, cols)), IsOk());
      EXPECT_EQ(cut, whole) << cols << " columns";
    }
  }
}

TEST_P(OpsTest, ActivationsLeaveTheColumnsBesideTheirOwnAlone) {
  std::vector<float> x(3 * 20, -1.0f);
  ASSERT_THAT(ops_->Activate(Activation::kRelu, {x.data(), 3, 13, 20}), IsOk());
  for (int64_t i = 0; i < 60; ++i) ASSERT_EQ(x[i], i % 20 < 13 ? 0.0f : -1.0f);
}

TEST_P(OpsTest, ActivationsOfNanAreNan) {
  for (const Activation activation : kActivations) {
    std::vector<float> x(19, std::numeric_limits<float>::quiet_NaN());
    ASSERT_THAT(ops_->Activate(activation, AsRows(x, 19)), IsOk());
    for (const float value : x) EXPECT_TRUE(std::isnan(value));
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, OpsTest, ::testing::ValuesIn(AvailableIsas()), IsaTestName);

}  // namespace
}  // namespace tlm
