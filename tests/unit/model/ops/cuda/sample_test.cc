// Sampling on the device against Sampler, which is their specification: tokens, scores and statuses
// have to be the same to the bit.
#include "model/ops/cuda/kernels/sampling/sample.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "model/sampling/sampler.h"
#include "model/sampling/sampling_math.h"
#include "tests/support/host_sampling.h"
#include "tests/support/simt/device_under_test.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/model/ops/cuda/device_sampler.h"

namespace tlm {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

using Random = std::mt19937_64;

bool OneIn(Random& random, int count) { return random() % static_cast<uint64_t>(count) == 0; }
float Uniform(Random& random, float low, float high) {
  return std::uniform_real_distribution<float>(low, high)(random);
}

// Of many characters: wide and narrow, tied, with a token alone, with excluded ones, with none.
std::vector<float> RandomLogits(int64_t vocab_size, Random& random) {
  constexpr float kSpreads[] = {0.0f, 1e-6f, 0.1f, 2.0f, 2.0f, 2.0f, 10.0f, 1e4f, 1e30f};
  std::normal_distribution<float> normal(Uniform(random, -20.0f, 20.0f),
                                         kSpreads[random() % std::size(kSpreads)]);
  std::vector<float> logits(vocab_size);
  for (float& logit : logits) logit = normal(random);
  if (OneIn(random, 3)) {
    const float step = OneIn(random, 2) ? 0.5f : 4.0f;
    for (float& logit : logits) logit = std::round(logit / step) * step;
  }
  if (OneIn(random, 4)) {
    for (float& logit : logits) logit = OneIn(random, 3) ? -kInf : logit;
  }
  if (OneIn(random, 4)) logits[random() % logits.size()] = Uniform(random, 0.0f, 60.0f);
  if (OneIn(random, 8)) {
    for (float& logit : logits) logit = OneIn(random, 2) ? 0.0f : -0.0f;
  }
  if (OneIn(random, 30)) std::fill(logits.begin(), logits.end(), -kInf);
  if (OneIn(random, 30)) logits[random() % logits.size()] = kInf;
  if (OneIn(random, 30)) logits[random() % logits.size()] = std::nanf("");
  return logits;
}

std::vector<int32_t> RandomIds(int64_t vocab_size, Random& random) {
  // A few, some, or most of them.
  const int every = OneIn(random, 3) ? 2 : (OneIn(random, 2) ? 40 : 1000);
  std::vector<int32_t> ids;
  for (int64_t id = 0; id < vocab_size; ++id) {
    if (OneIn(random, every)) ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

TokenHistory RandomHistory(int64_t vocab_size, Random& random) {
  TokenHistory history;
  for (int i = 0; i < 60; ++i) {
    const int32_t id = static_cast<int32_t>(random() % static_cast<uint64_t>(vocab_size));
    history.AddPrompt({&id, 1});
    if (OneIn(random, 2)) history.AddOutput(id);
    history.AddOutput(static_cast<int32_t>(random() % static_cast<uint64_t>(vocab_size)));
  }
  return history;
}

void RandomTruncation(int64_t vocab_size, Random& random, SamplingParams* params) {
  constexpr float kParts[] = {1e-30f, 1e-6f, 0.3f, 0.9f, 0.95f, 0.999f, 0.9999999f};
  if (OneIn(random, 2)) {
    params->top_k = 1 + static_cast<uint32_t>(
                            random() % (OneIn(random, 2) ? 40 : static_cast<uint64_t>(vocab_size)));
  }
  if (OneIn(random, 2)) params->top_p = kParts[random() % std::size(kParts)];
  if (OneIn(random, 3)) params->typical_p = kParts[random() % std::size(kParts)];
  if (OneIn(random, 3)) params->min_p = OneIn(random, 5) ? 1.0f : Uniform(random, 0.0f, 0.3f);
}

void RandomAdjustments(int64_t vocab_size, Random& random, Request* request) {
  SamplingParams& params = request->params;
  if (OneIn(random, 3)) {
    for (const int32_t id : RandomIds(vocab_size, random)) {
      params.logit_bias.emplace_back(id, Uniform(random, -10.0f, 10.0f));
    }
    if (OneIn(random, 10)) {
      for (auto& [id, bias] : params.logit_bias) bias *= 3e37f;
    }
  }
  if (OneIn(random, 3)) params.allowed_token_ids = RandomIds(vocab_size, random);
  if (OneIn(random, 3)) params.banned_token_ids = RandomIds(vocab_size, random);
  if (OneIn(random, 3)) request->banned = RandomIds(vocab_size, random);
  if (OneIn(random, 3)) request->mask = FixedMask::Of(RandomIds(vocab_size, random));
  if (OneIn(random, 2)) params.repetition_penalty = OneIn(random, 9) ? 1e-38f : 1.3f;
  if (OneIn(random, 2)) params.frequency_penalty = Uniform(random, -2.0f, 2.0f);
  if (OneIn(random, 2)) params.presence_penalty = Uniform(random, -2.0f, 2.0f);
  if (!params.has_penalties()) return;
  request->history = RandomHistory(vocab_size, random);
  for (uint64_t left = OneIn(random, 2) ? random() % 40 : 0; left > 0; --left) {
    request->draft.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(vocab_size)));
  }
}

Request RandomRequest(int64_t vocab_size, Random& random) {
  constexpr float kTemperatures[] = {0.0f, 1e-30f, 0.01f, 0.6f, 0.7f, 1.0f, 1.3f, 50.0f, 1e30f};
  Request request;
  request.logits = RandomLogits(vocab_size, random);
  request.params.temperature = kTemperatures[random() % std::size(kTemperatures)];
  request.params.seed = random();
  request.key = {.output_index = static_cast<uint32_t>(random() % 3), .position = random() >> 30};
  if (!OneIn(random, 4)) RandomTruncation(vocab_size, random, &request.params);
  if (!OneIn(random, 3)) RandomAdjustments(vocab_size, random, &request);
  if (OneIn(random, 2)) {
    request.score = {.logprob = OneIn(random, 2),
                     .top = static_cast<uint32_t>(random() % 33) * (OneIn(random, 2) ? 1u : 0u),
                     .processed = OneIn(random, 2)};
  }
  return request;
}

struct SizeCase {
  int64_t vocab_size;
  int batches;
  int64_t stride = 0;
};

class SampleTest : public ::testing::TestWithParam<SizeCase> {};

TEST_P(SampleTest, MatchesSampler) {
  const SizeCase& size = GetParam();
  DeviceSampler device(size.vocab_size, size.stride);
  Random random(static_cast<uint64_t>(size.vocab_size));
  const int batches = RunsOnGpu() ? 5 * size.batches : size.batches;
  for (int batch = 0; batch < batches; ++batch) {
    ConfigureDevice({.seed = random()});
    std::vector<Request> requests;
    const size_t jobs = 1 + random() % kMaxJobs;
    for (size_t i = 0; i < jobs; ++i) {
      requests.push_back(RandomRequest(size.vocab_size, random));
    }
    ExpectSamplersTokens(device, requests, "batch " + std::to_string(batch), OneIn(random, 2));
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, SampleTest,
                         ::testing::Values(SizeCase{1, 30}, SizeCase{2, 30}, SizeCase{31, 50},
                                           SizeCase{33, 50, 36}, SizeCase{1000, 60},
                                           SizeCase{4097, 20, 4100}, SizeCase{9000, 20},
                                           SizeCase{50257, 4}, SizeCase{151936, 2}),
                         [](const auto& info) { return std::to_string(info.param.vocab_size); });

// Logits as a language model gives them: a few likely tokens, thousands near each other.
std::vector<float> ModelLogits(int64_t vocab_size, Random& random) {
  std::normal_distribution<float> normal(0.0f, 2.5f);
  std::vector<float> logits(vocab_size);
  for (float& logit : logits) logit = normal(random);
  for (int i = 0; i < 12; ++i) {
    logits[random() % logits.size()] = 20.0f - 1.5f * static_cast<float>(i);
  }
  return logits;
}

struct ParamsCase {
  const char* name;
  SamplingParams params;
};
class LargeVocabularyTest : public ::testing::TestWithParam<ParamsCase> {};

TEST_P(LargeVocabularyTest, MatchesSampler) {
  constexpr int64_t kVocab = 151936;
  DeviceSampler device(kVocab);
  Random random(7);
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 2; ++i) {
    requests.push_back({.params = GetParam().params,
                        .key = {i, 5 * i},
                        .score = {.logprob = true, .top = 20 * i, .processed = i == 1},
                        .logits = ModelLogits(kVocab, random)});
    requests.back().params.seed = random();
  }
  ExpectSamplersTokens(device, requests, GetParam().name);
}

INSTANTIATE_TEST_SUITE_P(
    Params, LargeVocabularyTest,
    ::testing::Values(
        ParamsCase{"Greedy", {.temperature = 0.0f}}, ParamsCase{"Plain", {}},
        ParamsCase{"Hot", {.temperature = 5.0f}},
        ParamsCase{"ChatDefaults", {.temperature = 0.6f, .top_k = 20, .top_p = 0.95f}},
        ParamsCase{"HotTopP", {.temperature = 3.0f, .top_p = 0.9f}},
        ParamsCase{"LargeTopK", {.temperature = 3.0f, .top_k = 30000, .top_p = 0.99f}},
        ParamsCase{"Typical", {.temperature = 2.0f, .typical_p = 0.5f}},
        ParamsCase{"MinP", {.temperature = 1.5f, .min_p = 0.02f}}),
    [](const auto& info) { return std::string(info.param.name); });

Request OneRequest(std::vector<float> logits, SamplingParams params) {
  return {.params = std::move(params), .key = {3, 17}, .logits = std::move(logits)};
}

TEST(SampleEdgesTest, EqualLogitsAreCutByTheirIds) {
  constexpr int64_t kVocab = 5000;
  DeviceSampler device(kVocab);
  const std::vector<float> flat(kVocab, 1.5f);
  std::vector<Request> requests;
  for (const uint32_t top_k : {1u, 2u, 700u, 4999u, 5000u, 6000u}) {
    requests.push_back(OneRequest(flat, {.top_k = top_k}));
    requests.back().score = {.logprob = true, .top = 32, .processed = true};
  }
  requests.push_back(OneRequest(flat, {.top_p = 0.37f}));
  requests.push_back(OneRequest(flat, {.typical_p = 0.37f}));
  ExpectSamplersTokens(device, requests, "flat");
}

// The first and last tokens of what a block of the kernel reads (kSampleChunk, 4096).
TEST(SampleEdgesTest, AdjustmentsReachBothSidesOfAChunksBorder) {
  constexpr int64_t kVocab = 9000;
  DeviceSampler device(kVocab);
  for (const int32_t id : {0, 4095, 4096, 8191, 8192, 8999}) {
    std::vector<float> low(kVocab, 0.0f), high(kVocab, 0.0f);
    low[50] = 1.0f;
    high[50] = 1.0f;
    high[id] = 2.0f;
    TokenHistory seen;
    seen.AddOutput(id);
    std::vector<Request> requests = {
        OneRequest(low, {.temperature = 0.0f, .logit_bias = {{id, 2.0f}}}),
        OneRequest(high, {.temperature = 0.0f, .banned_token_ids = {id}}),
        OneRequest(low, {.temperature = 0.0f, .allowed_token_ids = {id}}),
        OneRequest(high, {.temperature = 0.0f, .presence_penalty = 1.5f})};
    requests.back().history = seen;
    ExpectSamplersTokens(device, requests, "border at " + std::to_string(id));
    EXPECT_EQ(device.sampled(), (std::vector<int32_t>{id, 50, id, 50}));
  }
}

TEST(SampleEdgesTest, ABiasLeavesLogitsFinite) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  DeviceSampler device(100);
  std::vector<float> logits(100, 0.0f);
  logits[3] = kLargest;
  logits[5] = 3e38f;
  logits[7] = -3e38f;
  const std::vector<std::pair<int32_t, float>> bias = {{5, 3e38f}, {7, -3e38f}};
  ExpectSamplersTokens(device,
                       {OneRequest(logits, {.temperature = 0.0f, .logit_bias = bias}),
                        OneRequest(logits, {.logit_bias = bias}),
                        OneRequest(logits, {.temperature = 1e30f, .logit_bias = bias})},
                       "bias");
  EXPECT_EQ(device.sampled()[0], 3);
}

// Of a token that is allowed and banned the kernel changes one bit twice.
TEST(SampleEdgesTest, ABannedTokenIsNotAllowed) {
  constexpr int64_t kVocab = 9000;
  DeviceSampler device(kVocab);
  std::vector<int32_t> ids;  // few enough for a list
  for (int32_t id = 0; id < 100; ++id) ids.push_back(id);
  std::vector<float> logits(kVocab, 0.0f);
  for (size_t id = 40; id < 99; ++id) logits[id] = 2.0f;
  logits[99] = 1.0f;
  std::vector<Request> requests(kMaxJobs, OneRequest(logits, {.temperature = 0.0f}));
  for (Request& request : requests) {
    request.params.allowed_token_ids = ids;
    request.params.banned_token_ids = {ids.begin() + 40, ids.end() - 1};  // by other warps
  }
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    ConfigureDevice({.seed = seed});
    ExpectSamplersTokens(device, requests, "banned");
    EXPECT_EQ(device.sampled(), std::vector<int32_t>(kMaxJobs, 99));
  }
}

NoiseKey KeyOf(const Request& request) {
  return {request.params.seed, request.key.position, request.key.output_index};
}

TEST(SampleEdgesTest, OfEqualNoiseTheLowerIdIsSampled) {
  constexpr int32_t kVocab = 200000;
  Request request = OneRequest(std::vector<float>(kVocab, -100.0f), {});
  std::vector<std::pair<uint32_t, int32_t>> words;
  std::optional<std::pair<int32_t, int32_t>> equal;
  for (uint64_t position = 1; !equal.has_value() && position < 50; ++position) {
    request.key.position = position;
    words.clear();
    for (int32_t id = 0; id < kVocab; ++id) words.emplace_back(NoiseWord(KeyOf(request), id), id);
    std::sort(words.begin(), words.end());
    for (size_t i = 1; i < words.size(); ++i) {
      if (words[i].first == words[i - 1].first) equal = {words[i - 1].second, words[i].second};
    }
  }
  ASSERT_TRUE(equal.has_value());
  request.logits[equal->first] = 50.0f;
  request.logits[equal->second] = 50.0f;
  Request truncated = request;
  truncated.params.top_k = 2;
  DeviceSampler device(kVocab);
  ExpectSamplersTokens(device, {request, truncated}, "equal noise");
  EXPECT_EQ(device.sampled(), (std::vector<int32_t>{equal->first, equal->first}));
}

// Chunks and tokens are passed over that no noise brings to the front: no others.
TEST(SampleEdgesTest, NoiseBringsATokenFarBehindToTheFront) {
  constexpr int32_t kVocab = 4100;
  constexpr int32_t kFar = 4099;  // of a chunk of its own
  Request request = OneRequest(std::vector<float>(kVocab, -kInf), {});
  double most = 0.0;
  uint64_t position = 0;
  for (request.key.position = 0; request.key.position < 3000000; ++request.key.position) {
    const double noise = GumbelNoise(NoiseWord(KeyOf(request), kFar));
    if (noise > most) {
      most = noise;
      position = request.key.position;
    }
  }
  ASSERT_GT(most, 14.0);
  request.key.position = position;
  const double of_best = GumbelNoise(NoiseWord(KeyOf(request), 7));
  request.logits[7] = 0.0f;
  request.logits[kFar] = static_cast<float>(of_best - most + 0.01);
  Request behind = request;
  behind.logits[kFar] = static_cast<float>(of_best - most - 0.01);
  Request truncated = request;
  truncated.params.top_k = 2;
  DeviceSampler device(kVocab);
  ExpectSamplersTokens(device, {request, behind, truncated}, "far behind");
  EXPECT_EQ(device.sampled(), (std::vector<int32_t>{kFar, 7, kFar}));
}

TEST(SampleEdgesTest, ADraftIsPenalisedAsOutput) {
  constexpr int64_t kVocab = 6000;
  DeviceSampler device(kVocab);
  Sampler sampler;
  Random random(33);
  const TokenHistory history = RandomHistory(kVocab, random);
  for (const size_t step : {1, 3, 150}) {
    // New ones and those of the history, some of them again.
    std::vector<int32_t> draft;
    for (const auto& [id, seen] : history.seen()) draft.push_back(id);
    while (draft.size() < step * kMaxJobs) {
      draft.push_back(OneIn(random, 2) ? draft[random() % draft.size()]
                                       : static_cast<int32_t>(random() % kVocab));
    }
    std::shuffle(draft.begin(), draft.end(), random);
    std::vector<Request> requests;
    for (size_t i = 0; i < kMaxJobs; ++i) {
      requests.push_back(
          {.params = {.temperature = i % 2 == 0 ? 0.0f : 1.0f,
                      .repetition_penalty = 1.3f,
                      .presence_penalty = 0.4f,
                      .frequency_penalty = i == 3 ? 0.0f : 0.2f},
           .shared_history = &history,
           .draft = {draft.begin(), draft.begin() + static_cast<ptrdiff_t>(step * i)},
           .score = {.logprob = true, .top = 32, .processed = true},
           .logits = ModelLogits(kVocab, random)});
      for (const int32_t id : draft) requests[i].logits[id] += 15.0f;
    }
    // Another one's between those that share.
    requests[5].shared_history = nullptr;
    const auto tokens = device.Sample(requests);
    for (size_t i = 0; i < kMaxJobs; ++i) {
      const Request& request = requests[i];
      TokenHistory longer = *request.Job().history;
      for (const int32_t id : request.draft) longer.AddOutput(id);
      ExpectSame(tokens[i],
                 sampler.Sample(request.logits, request.params, longer, {}, request.score),
                 "job " + std::to_string(i));
    }
  }
}

TEST(SampleEdgesTest, PenalisedHistoryCountsTheTokenSampledJustBefore) {
  constexpr int64_t kVocab = 6000;
  DeviceSampler device(kVocab);
  Random random(3);
  std::vector<Request> before;
  for (int i = 0; i < 3; ++i) before.push_back(OneRequest(ModelLogits(kVocab, random), {}));
  const auto first = device.Sample(before);
  const std::vector<int32_t> sampled = device.sampled();

  std::vector<Request> requests;
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < 3; ++i) {
    Request request =
        OneRequest(ModelLogits(kVocab, random), {.temperature = 0.0f, .frequency_penalty = 0.5f});
    // Known from the prompt, known from the output, unknown.
    const int32_t id = sampled[i];
    if (i == 0) request.history.AddPrompt({&id, 1});
    if (i == 1) request.history.AddOutput(id);
    // Others are penalised by other warps.
    for (int32_t other = 0; other < 600; ++other) {
      if (other / 2 != id) request.history.AddPrompt(std::vector<int32_t>{other / 2});
    }
    request.params.repetition_penalty = 1.25f;
    request.score = {.logprob = true, .processed = true};
    // Only so much in front that the penalty of one time more decides.
    request.logits[id] = i == 1 ? 26.3f : 25.5f;
    requests.push_back(std::move(request));
    ids.push_back(PendingToken(2 - i));  // rows stand in the other order
  }
  const auto tokens = device.Sample(requests, false, ids);
  Sampler sampler;
  for (size_t i = 0; i < 3; ++i) {
    Request& request = requests[i];
    const auto without =
        sampler.Sample(request.logits, request.params, request.history, request.key, request.score);
    request.history.AddOutput(sampled[i]);
    const auto with =
        sampler.Sample(request.logits, request.params, request.history, request.key, request.score);
    EXPECT_NE(with->score->logprob, without->score->logprob) << "it decides";
    ExpectSame(tokens[i], with, "job " + std::to_string(i));
  }
}

TEST(SampleEdgesTest, JobsForTheHostAreReportedAndGiveTokenZeroOnTheDevice) {
  constexpr int64_t kVocab = 40000;
  DeviceSampler device(kVocab);
  Random random(9);
  std::vector<Request> requests(3, OneRequest(ModelLogits(kVocab, random), {}));
  requests[0].score.top = 33;
  for (int32_t id = 0; id < 8200; ++id) requests[2].params.logit_bias.emplace_back(id, 1.0f);
  const auto tokens = device.Sample(requests, true);
  EXPECT_EQ(device.packed().host, (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(device.sampled()[0], 0);
  EXPECT_EQ(device.sampled()[2], 0);
  Sampler sampler;
  const Request& second = requests[1];
  ExpectSame(tokens[1],
             sampler.Sample(second.logits, second.params, second.history, second.key, {}),
             "between two of the host");
}

TEST(SampleEdgesTest, AJobWhoseMaskIsLateSamplesNothing) {
  constexpr int64_t kVocab = 5000;
  DeviceSampler device(kVocab);
  Random random(10);
  std::vector<Request> requests(4, OneRequest(ModelLogits(kVocab, random), {}));
  requests[0].mask = FixedMask::Of(std::vector<int32_t>{4999});
  requests[1].mask = FixedMask(std::nullopt);
  requests[2].score.top = 33;
  const auto tokens = device.Sample(requests, true);
  ASSERT_THAT(tokens[0], IsOk());
  EXPECT_EQ(tokens[0]->id, 4999);
  EXPECT_THAT(tokens[1], IsUnavailable("in time"));
  EXPECT_EQ(device.sampled()[1], 0);
  EXPECT_EQ(device.packed().host, std::vector<int32_t>{2});
  EXPECT_THAT(tokens[3], IsOk());
}

TEST(SampleEdgesTest, BitsDoNotDependOnTheOtherJobs) {
  constexpr int64_t kVocab = 9000;
  DeviceSampler device(kVocab);
  Random random(21);
  std::vector<Request> all;
  for (int i = 0; i < kMaxJobs; ++i) all.push_back(RandomRequest(kVocab, random));
  const auto together = device.Sample(all);
  for (size_t i = 0; i < all.size(); ++i) {
    ExpectSame(device.Sample({all[i]}, i % 2 == 1)[0], together[i], "job " + std::to_string(i));
  }
}

}  // namespace
}  // namespace tlm
