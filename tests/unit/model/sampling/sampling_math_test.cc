#include "model/sampling/sampling_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace tlm {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, uint64_t key) {
  uint32_t words[4] = {counter[0], counter[1], counter[2], counter[3]};
  PhiloxWords(words, key);
  return {words[0], words[1], words[2], words[3]};
}

TEST(GumbelNoiseTest, IsBoundedByItsWord) {
  std::mt19937_64 random(1);
  std::vector<uint32_t> words = {0, 1, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff};
  for (int i = 0; i < 100000; ++i) {
    const uint32_t word = static_cast<uint32_t>(random());
    words.push_back(i % 2 == 0 ? word : ~(word >> (random() % 32)));
  }
  for (const uint32_t word : words) {
    const double uniform = (word + 0.5) * 0x1p-32;
    ASSERT_NEAR(GumbelNoise(word), -std::log(-std::log(uniform)), 1e-13) << word;
    ASSERT_GE(GumbelBound(word), GumbelNoise(word)) << word;
    ASSERT_LT(GumbelBound(word), std::max(GumbelNoise(word), 0.0) + 1.1) << word;
    ASSERT_GE(kMaxGumbel, GumbelBound(word)) << word;
  }
}

TEST(PhiloxTest, ReproducesTheAuthorsKnownAnswers) {
  // Random123's kat_vectors, philox4x32 with 10 rounds.
  EXPECT_EQ(Philox({0, 0, 0, 0}, 0),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffff),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(NoiseWordTest, IsTheTokensOwnWordOfItsPhiloxBlock) {
  const NoiseKey key = {.seed = 0x123456789abcdef0, .position = 0x500000007, .output_index = 3};
  for (int32_t id = 0; id < 100; ++id) {
    const auto words = Philox({7, 5, 3, static_cast<uint32_t>(id) / 4}, key.seed);
    EXPECT_EQ(NoiseWord(key, id), words[static_cast<size_t>(id) % 4]) << id;
  }
}

TEST(FixedPointTest, RoundsToTheNearestInteger) {
  EXPECT_EQ(FixedPoint(0.0, 0x1p39), 0u);
  EXPECT_EQ(FixedPoint(1.0, 0x1p39), uint64_t{1} << 39);
  EXPECT_EQ(FixedPoint(1.0, 0x1p51), uint64_t{1} << 51);
  EXPECT_EQ(FixedPoint(0x1.8p-39, 0x1p39), 2u);
  EXPECT_EQ(FixedPoint(0x1.4p-39, 0x1p39), 1u);
  EXPECT_EQ(FixedPoint(0x0.7p-39, 0x1p39), 0u);
}

TEST(ProbabilityWeightTest, IsNoneFarBehindTheBestToken) {
  EXPECT_EQ(ProbabilityWeight(0.0), uint64_t{1} << 39);
  EXPECT_GT(ProbabilityWeight(-27.0), 0u);
  EXPECT_EQ(ProbabilityWeight(-28.0), 0u);
  EXPECT_EQ(ProbabilityWeight(-1e300), 0u);
  EXPECT_EQ(InformationWeight(-1e300), 0u);
}

TEST(NormaliserTest, SumsOfWholeVocabulariesFit) {
  for (const int64_t size : {1, 2048, 2049, 32000, 151936, 1 << 24}) {
    const double scale = NormaliserScale(size);
    EXPECT_LE(static_cast<double>(size) * scale, 0x1p63) << size;
    EXPECT_GE(static_cast<double>(std::max<int64_t>(size, 2048)) * scale, 0x1p61) << size;
    const uint64_t one = NormaliserWeight(3.0f, 3.0f, scale);
    const double normaliser = Normaliser(3.0f, one * static_cast<uint64_t>(size), scale);
    EXPECT_NEAR(normaliser, 3.0 + std::log(static_cast<double>(size)), 1e-14) << size;
  }
}

TEST(NormaliserTest, IsThatOfFloat64) {
  std::mt19937_64 random(4);
  std::normal_distribution<float> normal(0.0f, 4.0f);
  std::vector<float> logits(150000);
  for (float& logit : logits) logit = normal(random);
  const float max = *std::max_element(logits.begin(), logits.end());
  const double scale = NormaliserScale(static_cast<int64_t>(logits.size()));
  uint64_t sum = 0;
  double expected = 0.0;
  for (const float logit : logits) {
    sum += NormaliserWeight(logit, max, scale);
    expected += std::exp(static_cast<double>(logit) - max);
  }
  EXPECT_NEAR(Normaliser(max, sum, scale), max + std::log(expected), 1e-8);
}

TEST(LogProbabilityTest, KnowsOneZero) {
  EXPECT_FALSE(std::signbit(LogProbability(-0.0f, 0.0)));
  EXPECT_EQ(LogProbability(-kInf, 2.0), -kInf);
}

TEST(OrderedBitsTest, RiseWithTheLogit) {
  const std::vector<float> rising = {-kInf,  -3e38f, -2.0f, -1e-45f, 0.0f,
                                     1e-45f, 1.0f,   3e38f, kInf};
  for (size_t i = 0; i + 1 < rising.size(); ++i) {
    EXPECT_LT(OrderedBits(rising[i]), OrderedBits(rising[i + 1])) << rising[i];
  }
  for (const float logit : rising) EXPECT_EQ(LogitOfOrderedBits(OrderedBits(logit)), logit);
  EXPECT_EQ(OrderedBits(-0.0f), OrderedBits(0.0f));
  EXPECT_FALSE(std::signbit(LogitOfOrderedBits(OrderedBits(-0.0f))));
}

}  // namespace
}  // namespace tlm
