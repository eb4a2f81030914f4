#include "model/weights/truncated_normal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace tlm {
namespace {

std::vector<float> Samples(const TruncatedNormal& stream, int64_t first, size_t count) {
  std::vector<float> values(count);
  stream.Fill(first, 1.0f, values);
  return values;
}

double Phi(double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); }

TEST(TruncatedNormalTest, FollowsTheDistribution) {
  constexpr size_t kCount = size_t{1} << 20;
  std::vector<float> values = Samples(TruncatedNormal(7, "w"), 0, kCount);
  double sum = 0;
  double squares = 0;
  for (const float value : values) {
    ASSERT_LE(std::abs(value), 3.0f);
    sum += value;
    squares += double{value} * value;
  }
  // Five deviations of the estimates.
  EXPECT_NEAR(sum / kCount, 0.0, 5 / std::sqrt(double{kCount}));
  EXPECT_NEAR(std::sqrt(squares / kCount), TruncatedNormal::kDeviation,
              5 / std::sqrt(2.0 * kCount));
  // Kolmogorov and Smirnov: the chance of a larger distance is below 1e-7.
  std::sort(values.begin(), values.end());
  double distance = 0;
  for (size_t i = 0; i < kCount; ++i) {
    const double expected = (Phi(values[i]) - Phi(-3)) / (Phi(3) - Phi(-3));
    distance = std::max(distance, std::abs(expected - (static_cast<double>(i) + 0.5) / kCount));
  }
  EXPECT_LT(distance, 3.0 / std::sqrt(double{kCount}));
  EXPECT_LT(values.front(), -2.99f);
  EXPECT_GT(values.back(), 2.99f);
}

TEST(TruncatedNormalTest, NeighboursAreIndependent) {
  constexpr size_t kCount = size_t{1} << 18;
  const std::vector<float> values = Samples(TruncatedNormal(1, "w"), 0, kCount);
  for (const size_t lag : {1, 2, 3, 64, 768}) {
    double product = 0;
    for (size_t i = lag; i < kCount; ++i) product += double{values[i]} * values[i - lag];
    EXPECT_NEAR(product / kCount, 0.0, 5 / std::sqrt(double{kCount})) << lag;
  }
}

TEST(TruncatedNormalTest, ASampleDependsOnSeedNameAndIndexAlone) {
  const TruncatedNormal stream(3, "layers.0.attn.q_proj.weight");
  const std::vector<float> all = Samples(stream, 0, 5000);
  for (const int64_t first : {2, 510, 512, 1026, 4998}) {
    const size_t rest = all.size() - static_cast<size_t>(first);
    for (const size_t count : {size_t{1}, std::min<size_t>(rest, 777), rest}) {
      EXPECT_EQ(Samples(stream, first, count),
                std::vector<float>(all.begin() + first,
                                   all.begin() + first + static_cast<int64_t>(count)))
          << first << " " << count;
    }
  }
  EXPECT_NE(Samples(TruncatedNormal(4, "layers.0.attn.q_proj.weight"), 0, 5000), all);
  EXPECT_NE(Samples(TruncatedNormal(3, "layers.1.attn.q_proj.weight"), 0, 5000), all);
}

// Every build on every machine computes these.
TEST(TruncatedNormalTest, FirstSamplesAreFixed) {
  const std::vector<float> expected = {-0x1.94a804p-1f, -0x1.fba9ap-1f,  -0x1.322f14p-4f,
                                       -0x1.b04bfep+0f, -0x1.058504p-1f, -0x1.930aep+0f,
                                       0x1.9af834p-1f,  0x1.6f7d62p-1f};
  EXPECT_EQ(Samples(TruncatedNormal(0, "w"), 0, expected.size()), expected);
}

TEST(TruncatedNormalTest, ScaleMultiplies) {
  const TruncatedNormal stream(0, "w");
  const std::vector<float> unit = Samples(stream, 0, 100);
  std::vector<float> scaled(100);
  stream.Fill(0, 0.02f, scaled);
  for (size_t i = 0; i < unit.size(); ++i) EXPECT_EQ(scaled[i], 0.02f * unit[i]);
}

}  // namespace
}  // namespace tlm
