#include "client/load/latency_histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace tlm::load {
namespace {

TEST(LatencyHistogramTest, IsZeroWithoutValues) {
  const LatencyHistogram histogram;
  EXPECT_EQ(histogram.count(), 0u);
  EXPECT_EQ(histogram.mean(), 0);
  EXPECT_EQ(histogram.Percentile(50), 0);
}

TEST(LatencyHistogramTest, IsExactForOneValue) {
  LatencyHistogram histogram;
  histogram.Add(0.0123);
  EXPECT_EQ(histogram.mean(), 0.0123);
  for (const double percent : {0.0, 50.0, 100.0}) EXPECT_EQ(histogram.Percentile(percent), 0.0123);
}

TEST(LatencyHistogramTest, FindsPercentilesByNearestRankWithinAQuarterPercent) {
  std::mt19937 random(7);
  std::lognormal_distribution<double> sample(-4, 2);
  LatencyHistogram histogram;
  std::vector<double> values;
  for (int i = 0; i < 10001; ++i) {
    values.push_back(sample(random));
    histogram.Add(values.back());
  }
  std::sort(values.begin(), values.end());
  for (const double percent : {1.0, 50.0, 90.0, 99.0, 99.99}) {
    const auto rank = static_cast<size_t>(std::ceil(percent / 100 * 10001));
    EXPECT_NEAR(histogram.Percentile(percent) / values[rank - 1], 1, 0.0026) << percent;
  }
  EXPECT_EQ(histogram.min(), values.front());
  EXPECT_EQ(histogram.max(), values.back());
}

TEST(LatencyHistogramTest, CountsAValueSoManyTimes) {
  LatencyHistogram histogram;
  histogram.Add(1, 9);
  histogram.Add(11, 1);
  histogram.Add(5, 0);
  EXPECT_EQ(histogram.count(), 10u);
  EXPECT_DOUBLE_EQ(histogram.mean(), 2);
  EXPECT_NEAR(histogram.Percentile(90), 1, 0.0026);
  EXPECT_NEAR(histogram.Percentile(91), 11, 0.03);
}

TEST(LatencyHistogramTest, TakesValuesBeyondItsBuckets) {
  LatencyHistogram histogram;
  histogram.Add(-1);
  histogram.Add(0);
  histogram.Add(1e9);
  EXPECT_EQ(histogram.min(), 0);
  EXPECT_EQ(histogram.max(), 1e9);
  EXPECT_LE(histogram.Percentile(50), 1e-5);
  EXPECT_GT(histogram.Percentile(100), 86400);
}

}  // namespace
}  // namespace tlm::load
