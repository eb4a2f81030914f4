#include "model/sampling/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "model/sampling/sampling_math.h"
#include "tests/support/host_sampling.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> RandomLogits(int count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

int32_t SampleId(const std::vector<float>& logits, const SamplingParams& params, uint64_t position,
                 uint32_t output = 0) {
  Sampler sampler;
  const auto token = sampler.Sample(logits, params, {}, {output, position}, {});
  EXPECT_THAT(token, IsOk());
  return token->id;
}

// The tokens sampled, and how often.
std::map<int32_t, int> CountSamples(const std::vector<float>& logits, const SamplingParams& params,
                                    int count) {
  std::map<int32_t, int> counts;
  for (int position = 0; position < count; ++position) {
    ++counts[SampleId(logits, params, static_cast<uint64_t>(position))];
  }
  return counts;
}

TEST(SamplerTest, GreedyTakesTheLowestIdAmongEquals) {
  EXPECT_EQ(SampleId({1.0f, 3.0f, 3.0f, -kInf}, {.temperature = 0.0f}, 0), 1);
}

TEST(SamplerTest, SkippingHopelessTokensChangesNoSample) {
  // The same sample with every token's noise computed.
  const std::vector<float> logits = RandomLogits(3000, 21);
  const float max = *std::max_element(logits.begin(), logits.end());
  const SamplingParams params{.temperature = 0.6f, .seed = 99};
  for (uint64_t position = 0; position < 200; ++position) {
    int32_t best = -1;
    double best_value = -std::numeric_limits<double>::infinity();
    for (int32_t id = 0; id < 3000; ++id) {
      uint32_t words[] = {static_cast<uint32_t>(position), 0, 0, static_cast<uint32_t>(id) / 4};
      PhiloxWords(words, params.seed);
      const double uniform = (words[id % 4] + 0.5) * 0x1p-32;
      const double value = (static_cast<double>(logits[id]) - max) / double{params.temperature} -
                           std::log(-std::log(uniform));
      if (value > best_value) {
        best_value = value;
        best = id;
      }
    }
    ASSERT_EQ(SampleId(logits, params, position), best) << position;
  }
}

TEST(SamplerTest, TheTokenDependsOnSeedPositionAndOutputOnly) {
  const std::vector<float> logits(50, 0.0f);
  const SamplingParams params{.temperature = 1.0f, .seed = 77};
  std::vector<int32_t> by_position, by_output, by_seed;
  for (uint32_t i = 0; i < 50; ++i) {
    EXPECT_EQ(SampleId(logits, params, i), SampleId(logits, params, i));
    by_position.push_back(SampleId(logits, params, i));
    by_output.push_back(SampleId(logits, params, 0, i));
    by_seed.push_back(SampleId(logits, {.temperature = 1.0f, .seed = i}, 0));
  }
  for (const auto& ids : {by_position, by_output, by_seed}) {
    EXPECT_GT(std::set<int32_t>(ids.begin(), ids.end()).size(), 20u);
  }
  EXPECT_NE(by_position, by_output);
  EXPECT_NE(by_position, by_seed);
}

TEST(SamplerTest, RefusesWhatIsNoDistribution) {
  Sampler sampler;
  const std::vector<float> nan = {0.0f, std::nanf(""), 1.0f};
  EXPECT_THAT(sampler.Sample(nan, {}, {}, {}, {}), IsDataLoss("token 1"));
  const std::vector<float> infinite = {0.0f, kInf};
  EXPECT_THAT(sampler.Sample(infinite, {}, {}, {}, {}), IsDataLoss("inf"));
  const std::vector<float> none = {-kInf, -kInf};
  EXPECT_THAT(sampler.Sample(none, {}, {}, {}, {}), IsDataLoss("all 2"));
}

TEST(SamplerTest, BannedTokensAreNotSampledButScored) {
  const std::vector<float> logits = {1.0f, 5.0f, 2.0f, 4.0f};
  const std::vector<int32_t> banned = {1, 3};
  Sampler sampler;
  const auto greedy =
      sampler.Sample(logits, {.temperature = 0.0f}, {}, {}, {.top = 1}, {.banned = banned});
  ASSERT_THAT(greedy, IsOk());
  EXPECT_EQ(greedy->id, 2);
  EXPECT_EQ(greedy->top[0].id, 1);
  for (uint64_t position = 0; position < 300; ++position) {
    const auto token = sampler.Sample(logits, {.temperature = 5.0f, .top_p = 0.9f}, {},
                                      {0, position}, {}, {.banned = banned});
    ASSERT_THAT(token, IsOk());
    EXPECT_THAT(token->id, ::testing::AnyOf(0, 2));
  }
  const std::vector<int32_t> all = {0, 1, 2, 3};
  EXPECT_THAT(sampler.Sample(logits, {}, {}, {}, {}, {.banned = all}),
              IsInvalidArgument("4 ending ids"));
}

class MaskTest : public ::testing::TestWithParam<const ScanKernels*> {};

// A mask means what a list of allowed ids means: the same tokens and scores, whatever else removes
// tokens.
TEST_P(MaskTest, SamplesAsFromAllowedIds) {
  Sampler sampler(*GetParam());
  std::mt19937_64 random(31);
  for (uint64_t round = 0; round < 400; ++round) {
    const int vocab_size = 1 + static_cast<int>(random() % 3000);
    const std::vector<float> logits = RandomLogits(vocab_size, round);
    const uint64_t every = 1 + random() % 60;
    SamplingParams listed{.temperature = round % 4 == 0 ? 0.0f : 0.9f,
                          .top_k = round % 3 == 0 ? 20u : 0u,
                          .top_p = round % 5 == 0 ? 0.8f : 1.0f,
                          .seed = round};
    SamplingParams params = listed;
    std::vector<int32_t> banned;
    std::vector<int32_t> masked;
    for (int32_t id = 0; id < vocab_size; ++id) {
      if (random() % every == 0) listed.allowed_token_ids.push_back(id);
      if (random() % 9 == 0) banned.push_back(id);
    }
    if (listed.allowed_token_ids.empty()) continue;
    if (round % 2 == 0) {
      params.allowed_token_ids = listed.allowed_token_ids;
      for (int32_t id = 0; id < vocab_size; ++id) {
        if (random() % 5 > 0) masked.push_back(id);
      }
      std::erase_if(listed.allowed_token_ids, [&](int32_t id) {
        return !std::binary_search(masked.begin(), masked.end(), id);
      });
      if (listed.allowed_token_ids.empty()) continue;
    } else {
      masked = listed.allowed_token_ids;
    }
    const FixedMask mask = FixedMask::Of(masked);
    const LogprobOptions score = {.logprob = true, .top = 3, .processed = round % 3 == 1};
    const SampleKey key = {.position = round};
    const TokenHistory history;
    const auto by_list = sampler.Sample(logits, listed, history, key, score, {.banned = banned});
    const auto by_mask = sampler.Sample(logits, {.params = &params,
                                                 .history = &history,
                                                 .key = key,
                                                 .score = score,
                                                 .banned = banned,
                                                 .mask = &mask});
    ASSERT_EQ(by_mask.status().code(), by_list.status().code()) << by_mask.status();
    if (!by_list.ok()) continue;
    EXPECT_EQ(by_mask->id, by_list->id);
    EXPECT_EQ(by_mask->score->logprob, by_list->score->logprob);
    EXPECT_EQ(by_mask->score->rank, by_list->score->rank);
    for (size_t i = 0; i < by_list->top.size(); ++i) {
      EXPECT_EQ(by_mask->top[i].id, by_list->top[i].id);
      EXPECT_EQ(by_mask->top[i].logprob, by_list->top[i].logprob);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, MaskTest,
                         ::testing::Values(&PortableScanKernels(), &FastestScanKernels()));

TEST(SamplerTest, AMaskThatLeavesNothingOrIsLateIsTold) {
  const std::vector<float> logits(100, 1.0f);
  const SamplingParams params;
  const TokenHistory history;
  Sampler sampler;
  const auto sample = [&](const FixedMask& mask) {
    return sampler.Sample(logits, {.params = &params, .history = &history, .mask = &mask});
  };
  EXPECT_THAT(sample(FixedMask(std::vector<uint64_t>())), IsInvalidArgument("the constraint"));
  EXPECT_THAT(sample(FixedMask(std::nullopt)), IsUnavailable("in time"));
  EXPECT_EQ(sample(FixedMask::Of(std::vector<int32_t>{99}))->id, 99);
}

TEST(SamplerTest, ADraftIsPenalisedAsOutput) {
  constexpr int kVocab = 300;
  const SamplingParams penalties[] = {
      {.repetition_penalty = 1.4f},
      {.presence_penalty = 1.5f},
      {.frequency_penalty = -0.3f},
      {.repetition_penalty = 0.8f, .presence_penalty = -0.5f, .frequency_penalty = 0.7f}};
  const LogprobOptions score = {.logprob = true, .top = kVocab, .processed = true};
  std::mt19937_64 random(31);
  const auto some_id = [&] { return static_cast<int32_t>(random() % kVocab); };
  Sampler sampler;
  for (const size_t length : {1, 2, 16, 17, 700}) {
    for (SamplingParams params : penalties) {
      params.temperature = random() % 2 == 0 ? 0.0f : 1.5f;
      params.logit_bias = {{7, 2.0f}};
      params.banned_token_ids = {5, 6};
      std::vector<float> logits = RandomLogits(kVocab, random());
      logits[8] = -kInf;
      TokenHistory history;
      for (int i = 0; i < 100; ++i) {
        const int32_t id = some_id();
        history.AddPrompt({&id, 1});
        history.AddOutput(some_id());
      }
      std::vector<int32_t> draft = {5};
      while (draft.size() < length) draft.push_back(some_id());
      TokenHistory longer = history;
      for (const int32_t id : draft) longer.AddOutput(id);
      const SampleKey key = {.position = length};
      const auto expected = sampler.Sample(logits, params, longer, key, score);
      const auto token = sampler.Sample(
          logits,
          {.params = &params, .history = &history, .key = key, .score = score, .draft = draft});
      ASSERT_THAT(expected, IsOk());
      ASSERT_THAT(token, IsOk());
      EXPECT_EQ(token->id, expected->id);
      for (size_t i = 0; i < expected->top.size(); ++i) {
        ASSERT_EQ(token->top[i].id, expected->top[i].id);
        ASSERT_EQ(token->top[i].logprob, expected->top[i].logprob);
      }
    }
  }
}

TEST(SamplerTest, ADraftChangesNothingWithoutPenalties) {
  const std::vector<float> logits = RandomLogits(100, 3);
  const SamplingParams params;
  const TokenHistory history;
  const std::vector<int32_t> draft = {1, 2, 3};
  const auto token =
      Sampler().Sample(logits, {.params = &params, .history = &history, .draft = draft});
  EXPECT_EQ(token->id, SampleId(logits, params, 0));
}

TEST(SamplerTest, ImpossibleTokensAreNeverSampled) {
  std::vector<float> logits(100, -kInf);
  logits[40] = -1e30f;
  logits[41] = -1e30f;
  const auto counts = CountSamples(logits, {.temperature = 1.0f, .top_p = 0.9999f, .seed = 9}, 200);
  EXPECT_EQ(counts.size(), 2u);
}

}  // namespace
}  // namespace tlm
