// Every table of kernels against the plain functions, bit for bit.
#include "model/sampling/scan_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "model/sampling/sampling_math.h"

namespace tlm {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> RandomLogits(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 5.0f);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = random() % 16 == 0 ? -kInfinity : normal(random);
  return logits;
}

class ScanKernelsTest : public ::testing::TestWithParam<const ScanKernels*> {
 protected:
  const ScanKernels& kernels() const { return *GetParam(); }
};

TEST_P(ScanKernelsTest, MaxIsTheLargestWhereverItStands) {
  for (int64_t n = 1; n <= 200; ++n) {
    std::vector<float> logits = RandomLogits(static_cast<size_t>(n), static_cast<uint32_t>(n));
    bool valid = false;
    EXPECT_EQ(kernels().max(logits.data(), n, &valid), *std::ranges::max_element(logits));
    EXPECT_TRUE(valid);
    logits[n * 7 % n] = 100.0f;
    EXPECT_EQ(kernels().max(logits.data(), n, &valid), 100.0f);
  }
  const std::vector<float> none(70, -kInfinity);
  bool valid = false;
  EXPECT_EQ(kernels().max(none.data(), 70, &valid), -kInfinity);
  EXPECT_TRUE(valid);
}

TEST_P(ScanKernelsTest, MaxFindsUnsoundLogitsAtEveryPlace) {
  for (const float invalid : {std::nanf(""), -std::nanf(""), kInfinity}) {
    for (const int64_t n : {1, 3, 16, 64, 65, 131}) {
      for (int64_t place = 0; place < n; ++place) {
        std::vector<float> logits = RandomLogits(static_cast<size_t>(n), 3);
        logits[place] = invalid;
        bool valid = true;
        kernels().max(logits.data(), n, &valid);
        ASSERT_FALSE(valid) << invalid << " at " << place << " of " << n;
      }
    }
  }
}

TEST_P(ScanKernelsTest, FindGivesThePlacesBetweenTheBoundsInOrder) {
  for (const int64_t n : {1, 15, 16, 33, 300}) {
    std::vector<float> logits = RandomLogits(static_cast<size_t>(n), 5);
    logits[0] = -0.0f;
    for (const auto& [least, most] : {std::pair{0.0f, kInfinity},
                                      {-2.0f, 2.0f},
                                      {0.0f, 0.0f},
                                      {-kInfinity, kInfinity},
                                      {50.0f, 60.0f}}) {
      std::vector<int32_t> expected;
      for (int64_t i = 0; i < n; ++i) {
        const float logit = logits[i];
        if (logit >= least && logit <= most) expected.push_back(static_cast<int32_t>(i));
      }
      std::vector<int32_t> found(n);
      found.resize(kernels().find(logits.data(), n, least, most, found.data()));
      EXPECT_EQ(found, expected) << n << " logits in [" << least << ", " << most << "]";
    }
  }
}

TEST_P(ScanKernelsTest, NoiseIsThatOfEachToken) {
  const NoiseKey key{
      .seed = 0x123456789abcdef0, .position = 0xfedcba9876543210, .output_index = 77};
  for (const uint32_t least : {0u, 1u, 0x80000000u, 0xf0000000u, 0xffffffffu}) {
    for (const uint32_t first_group : {0u, 64u, 0x3fffffu}) {
      for (const int64_t groups : {1, 2, 8, 13, 64}) {
        std::vector<NoiseHit> hits(4 * groups + kMoreHits);
        hits.resize(kernels().find_noise({.seed = key.seed,
                                          .position = key.position,
                                          .output_index = key.output_index,
                                          .first_group = first_group,
                                          .groups = groups},
                                         least, hits.data()));
        std::set<int32_t> found;
        for (const auto [id, word] : hits) {
          ASSERT_EQ(word, NoiseWord(key, id)) << id;
          ASSERT_GE(word, least);
          ASSERT_TRUE(found.insert(id).second) << id << " twice";
        }
        for (int64_t i = 0; i < 4 * groups; ++i) {
          const auto id = static_cast<int32_t>(4 * int64_t{first_group} + i);
          ASSERT_EQ(found.contains(id), NoiseWord(key, id) >= least) << id;
        }
      }
    }
  }
}

TEST_P(ScanKernelsTest, WeightsAndGapsHaveTheBitsOfTheScalarFunctions) {
  std::vector<float> logits = RandomLogits(5003, 8);
  const float best = *std::ranges::max_element(logits);
  logits[1] = best - 1e-6f;
  logits[2] = -3e38f;
  logits[3] = 0.0f;
  logits[4] = -0.0f;
  logits[5] = best - 700.0f;
  std::vector<double> gaps(logits.size());
  std::vector<uint64_t> weights(logits.size());
  for (const double inverse_temperature : {1.0, 1.0 / 0.7f, 1e30, 1e-3}) {
    for (const double scale : {kWeightScale, NormaliserScale(5003)}) {
      kernels().weigh(logits.data(), 5003, best, inverse_temperature, scale, gaps.data(),
                      weights.data());
      for (size_t i = 0; i < logits.size(); ++i) {
        const double scaled = ScaledLogit(logits[i], best, inverse_temperature);
        ASSERT_EQ(gaps[i], -scaled) << logits[i];
        ASSERT_EQ(weights[i], FixedPoint(ExpOfNegative(scaled), scale)) << logits[i];
      }
    }
  }
  // Nothing is written behind the end.
  for (int64_t n = 0; n < 20; ++n) {
    weights.assign(weights.size(), 12345);
    kernels().weigh(logits.data(), n, best, 1.0, kWeightScale, gaps.data(), weights.data());
    ASSERT_EQ(weights[n], 12345u);
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, ScanKernelsTest, ::testing::ValuesIn(AvailableScanKernels()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace tlm
