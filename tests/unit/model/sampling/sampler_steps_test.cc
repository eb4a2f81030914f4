// Every step of sampling against a plain reference in double precision.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "model/sampling/sampler.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int kVocab = 400;

std::vector<float> RandomLogits(uint64_t seed, int count = kVocab) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

// What a token is sampled from, step by step as SamplingParams states them; 0 = removed.
class Reference {
 public:
  Reference(const std::vector<float>& logits, const SamplingParams& params,
            const std::vector<int32_t>& prompt, const std::vector<int32_t>& output)
      : values_(logits.begin(), logits.end()) {
    for (const auto& [id, bias] : params.logit_bias) values_[id] += bias;
    for (size_t id = 0; id < values_.size(); ++id) {
      const auto in = [&](const std::vector<int32_t>& ids) {
        return std::count(ids.begin(), ids.end(), static_cast<int32_t>(id));
      };
      const bool allowed = params.allowed_token_ids.empty() || in(params.allowed_token_ids) > 0;
      if (!allowed || in(params.banned_token_ids) > 0) values_[id] = -kInf;
      if (in(prompt) + in(output) > 0) {
        values_[id] = values_[id] > 0 ? values_[id] / params.repetition_penalty
                                      : values_[id] * params.repetition_penalty;
      }
      values_[id] -= params.frequency_penalty * static_cast<double>(in(output));
      if (in(output) > 0) values_[id] -= params.presence_penalty;
    }
    if (params.temperature == 0.0f) return;
    for (double& value : values_) value /= params.temperature;
    if (params.top_k > 0) {
      KeepFirst(values_.size(), params.top_k, [](double p) { return -p; });
    }
    if (params.typical_p < 1.0f) {
      double entropy = 0.0;
      for (const double p : Probabilities()) entropy -= p > 0 ? p * std::log(p) : 0.0;
      KeepFirst(params.typical_p, values_.size(),
                [=](double p) { return std::abs(-std::log(p) - entropy); });
    }
    if (params.top_p < 1.0f) {
      KeepFirst(params.top_p, values_.size(), [](double p) { return -p; });
    }
    const std::vector<double> p = Probabilities();
    const double floor = params.min_p * *std::max_element(p.begin(), p.end());
    for (size_t id = 0; id < p.size(); ++id) {
      if (p[id] < floor) values_[id] = -kInf;
    }
  }

  std::vector<double> Probabilities() const {
    std::vector<double> p;
    const double max = *std::max_element(values_.begin(), values_.end());
    for (const double value : values_) p.push_back(std::exp(value - max));
    const double total = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& one : p) one /= total;
    return p;
  }
  const std::vector<double>& values() const { return values_; }

 private:
  // Keeps tokens by rising key until their probability reaches `mass`, at most `count`.
  template <typename Key>
  void KeepFirst(double mass, size_t count, Key key) {
    const std::vector<double> p = Probabilities();
    std::vector<size_t> ids;
    for (size_t id = 0; id < p.size(); ++id) {
      if (p[id] > 0) ids.push_back(id);
    }
    std::stable_sort(ids.begin(), ids.end(),
                     [&](size_t a, size_t b) { return key(p[a]) < key(p[b]); });
    double sum = 0.0;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (i >= count || (i > 0 && sum >= mass)) values_[ids[i]] = -kInf;
      sum += p[ids[i]];
    }
  }

  std::vector<double> values_;
};

TokenHistory HistoryOf(const std::vector<int32_t>& prompt, const std::vector<int32_t>& output) {
  TokenHistory history;
  history.AddPrompt(prompt);
  for (const int32_t id : output) history.AddOutput(id);
  return history;
}

struct StepsCase {
  const char* name;
  SamplingParams params;
};
std::string CaseName(const ::testing::TestParamInfo<StepsCase>& info) { return info.param.name; }

class StepsTest : public ::testing::TestWithParam<StepsCase> {
 protected:
  // Some ids often, some once, some in the prompt alone.
  const std::vector<int32_t> prompt_ = {3, 5, 5, 7, 11, 200, 201, 399};
  const std::vector<int32_t> output_ = {5, 5, 5, 8, 200, 200, 13};
  const TokenHistory history_ = HistoryOf(prompt_, output_);
  Sampler sampler_;
};

TEST_P(StepsTest, ProcessedScoresAreTheDistributionSampledFrom) {
  for (uint64_t round = 0; round < 20; ++round) {
    const std::vector<float> logits = RandomLogits(round);
    const Reference reference(logits, GetParam().params, prompt_, output_);
    const std::vector<double> p = reference.Probabilities();
    const auto token = sampler_.Sample(logits, GetParam().params, history_, {0, round},
                                       {.logprob = true, .top = kVocab, .processed = true});
    ASSERT_THAT(token, IsOk());
    ASSERT_EQ(token->top.size(), static_cast<size_t>(kVocab));
    double sum = 0.0;
    for (const ScoredToken& scored : token->top) {
      const double expected = p[scored.id];
      if (expected == 0.0) {
        ASSERT_EQ(scored.logprob, -kInf) << "round " << round << ", token " << scored.id;
      } else {
        ASSERT_NEAR(scored.logprob, std::log(expected), 1e-4) << "token " << scored.id;
      }
      sum += std::exp(static_cast<double>(scored.logprob));
    }
    EXPECT_NEAR(sum, 1.0, 1e-5);
    const ScoredToken& own = token->top[token->score->rank - 1];
    EXPECT_EQ(own.id, token->id);
    EXPECT_EQ(own.logprob, token->score->logprob);
    EXPECT_GT(own.logprob, -kInf);
  }
}

TEST_P(StepsTest, SamplesFollowTheReference) {
  const std::vector<float> logits = RandomLogits(77);
  const std::vector<double> p =
      Reference(logits, GetParam().params, prompt_, output_).Probabilities();
  constexpr int kJobs = 8000;
  std::map<int32_t, int> jobs;
  for (uint64_t position = 0; position < kJobs; ++position) {
    const auto token = sampler_.Sample(logits, GetParam().params, history_, {1, position}, {});
    ASSERT_THAT(token, IsOk());
    ++jobs[token->id];
  }
  // Tokens too rare for the approximation are counted as one.
  double chi_squared = 0.0;
  double rare_expected = 0.0;
  double rare_observed = 0.0;
  int degrees = 0;
  for (size_t id = 0; id < p.size(); ++id) {
    const double expected = p[id] * kJobs;
    const double observed = jobs[static_cast<int32_t>(id)];
    ASSERT_TRUE(p[id] > 0.0 || observed == 0) << id;
    if (expected < 10) {
      rare_expected += expected;
      rare_observed += observed;
      continue;
    }
    chi_squared += (observed - expected) * (observed - expected) / expected;
    ++degrees;
  }
  if (rare_expected >= 10) {
    chi_squared += std::pow(rare_observed - rare_expected, 2) / rare_expected;
  }
  // Five deviations above the mean of the distribution.
  EXPECT_LT(chi_squared, degrees + 5 * std::sqrt(2.0 * degrees) + 5);
}

TEST_P(StepsTest, GreedyTakesTheArgmaxAfterThePenalties) {
  SamplingParams params = GetParam().params;
  params.temperature = 0.0f;
  for (uint64_t round = 0; round < 20; ++round) {
    const std::vector<float> logits = RandomLogits(round + 1000);
    const std::vector<double> values = Reference(logits, params, prompt_, output_).values();
    const auto token = sampler_.Sample(logits, params, history_, {},
                                       {.logprob = true, .top = 3, .processed = true});
    ASSERT_THAT(token, IsOk());
    EXPECT_EQ(token->id, std::max_element(values.begin(), values.end()) - values.begin());
    EXPECT_EQ(token->score->rank, 1u);
    EXPECT_EQ(token->top[0].id, token->id);
  }
}

TEST_P(StepsTest, RawScoresKnowNothingOfIt) {
  const std::vector<float> logits = RandomLogits(5);
  const auto plain =
      sampler_.Sample(logits, {.temperature = 0.0f}, {}, {}, {.logprob = true, .top = 7});
  const auto token =
      sampler_.Sample(logits, GetParam().params, history_, {}, {.logprob = true, .top = 7});
  ASSERT_THAT(plain, IsOk());
  ASSERT_THAT(token, IsOk());
  for (size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(token->top[i].id, plain->top[i].id);
    EXPECT_EQ(token->top[i].logprob, plain->top[i].logprob);
  }
  const auto given = sampler_.ScoreGiven(logits, token->id, 0);
  ASSERT_THAT(given, IsOk());
  EXPECT_EQ(token->score->logprob, given->score->logprob);
  EXPECT_EQ(token->score->rank, given->score->rank);
}

TEST_P(StepsTest, EqualInputsGiveEqualBits) {
  // History built in another order, a sampler with other scratch memory.
  std::vector<int32_t> prompt(prompt_.rbegin(), prompt_.rend());
  std::vector<int32_t> output(output_.rbegin(), output_.rend());
  const TokenHistory history = HistoryOf(prompt, output);
  Sampler other;
  const LogprobOptions score{.logprob = true, .top = 20, .processed = true};
  for (uint64_t round = 0; round < 20; ++round) {
    const std::vector<float> logits = RandomLogits(round + 50);
    const auto a = sampler_.Sample(logits, GetParam().params, history_, {2, round}, score);
    const auto unrelated = other.Sample(RandomLogits(round, 1000), {}, {}, {}, {});
    const auto b = other.Sample(logits, GetParam().params, history, {2, round}, score);
    ASSERT_THAT(a, IsOk());
    ASSERT_THAT(unrelated, IsOk());
    ASSERT_THAT(b, IsOk());
    EXPECT_EQ(a->id, b->id);
    EXPECT_EQ(a->score->logprob, b->score->logprob);
    for (size_t i = 0; i < a->top.size(); ++i) {
      EXPECT_EQ(a->top[i].id, b->top[i].id);
      EXPECT_EQ(a->top[i].logprob, b->top[i].logprob);
    }
  }
}

std::vector<int32_t> EveryThird() {
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < kVocab; id += 3) ids.push_back(id);
  return ids;
}

INSTANTIATE_TEST_SUITE_P(
    Alone, StepsTest,
    ::testing::Values(StepsCase{"Temperature", {.temperature = 0.6f}},
                      StepsCase{"TopK", {.top_k = 17}}, StepsCase{"TopP", {.top_p = 0.7f}},
                      StepsCase{"TinyTopP", {.temperature = 10.0f, .top_p = 1e-6f}},
                      StepsCase{"MinP", {.min_p = 0.1f}},
                      StepsCase{"TypicalP", {.typical_p = 0.6f}},
                      StepsCase{"SmallTypicalP", {.typical_p = 0.01f}},
                      StepsCase{"RepetitionPenalty", {.repetition_penalty = 1.7f}},
                      StepsCase{"RepetitionReward", {.repetition_penalty = 0.5f}},
                      StepsCase{"PresencePenalty", {.presence_penalty = 1.5f}},
                      StepsCase{"FrequencyPenalty", {.frequency_penalty = 0.8f}},
                      StepsCase{"FrequencyReward", {.frequency_penalty = -1.0f}},
                      StepsCase{"LogitBias", {.logit_bias = {{0, 5.0f}, {5, -3.0f}, {399, 2.5f}}}},
                      StepsCase{"Allowed", {.allowed_token_ids = EveryThird()}},
                      StepsCase{"Banned", {.banned_token_ids = EveryThird()}}),
    CaseName);
INSTANTIATE_TEST_SUITE_P(
    Together, StepsTest,
    ::testing::Values(StepsCase{"TypicalThenTopP",
                                {.temperature = 1.3f, .top_p = 0.5f, .typical_p = 0.7f}},
                      StepsCase{"TopKThenTypical", {.top_k = 30, .typical_p = 0.8f}},
                      StepsCase{"TypicalThenMinP", {.min_p = 0.3f, .typical_p = 0.4f}},
                      StepsCase{"AllowedThenTopK", {.top_k = 5, .allowed_token_ids = EveryThird()}},
                      StepsCase{"Everything",
                                {.temperature = 0.8f,
                                 .top_k = 100,
                                 .top_p = 0.95f,
                                 .min_p = 0.01f,
                                 .typical_p = 0.9f,
                                 .repetition_penalty = 1.2f,
                                 .presence_penalty = 0.3f,
                                 .frequency_penalty = 0.4f,
                                 .logit_bias = {{3, 4.0f}, {5, 4.0f}, {6, 6.0f}},
                                 .allowed_token_ids = EveryThird(),
                                 .banned_token_ids = {6, 9}}}),
    CaseName);

TEST(TypicalPTest, MayRemoveTheMostLikelyToken) {
  // One token of 0.3, a hundred of 0.007: the entropy is near the information of the many.
  std::vector<float> logits(101, std::log(0.007f));
  logits[50] = std::log(0.3f);
  Sampler sampler;
  for (uint64_t position = 0; position < 200; ++position) {
    const auto token = sampler.Sample(logits, {.typical_p = 0.5f}, {}, {0, position}, {});
    ASSERT_THAT(token, IsOk());
    EXPECT_NE(token->id, 50);
    // Of the equal ones, those of the lowest ids.
    EXPECT_LT(token->id, 73);
  }
}

TEST(AdjustedTest, MinNewTokensBansBesideAllowedIds) {
  const std::vector<float> logits = {1.0f, 5.0f, 2.0f, 4.0f};
  const SamplingParams params{.temperature = 0.0f, .allowed_token_ids = {1, 2}};
  Sampler sampler;
  const std::vector<int32_t> one = {1};
  const auto token = sampler.Sample(logits, params, {}, {}, {}, {.banned = one});
  ASSERT_THAT(token, IsOk());
  EXPECT_EQ(token->id, 2);
  const std::vector<int32_t> ending = {1, 2};
  EXPECT_THAT(sampler.Sample(logits, params, {}, {}, {}, {.banned = ending}),
              IsInvalidArgument("2 allowed", "2 ending ids"));
}

TEST(AdjustedTest, ModelThatExcludesEveryAllowedTokenIsInvalidArgument) {
  const std::vector<float> logits = {1.0f, -kInf, -kInf};
  const SamplingParams params{.logit_bias = {{1, 100.0f}}, .allowed_token_ids = {1, 2}};
  Sampler sampler;
  EXPECT_THAT(sampler.Sample(logits, params, {}, {}, {}),
              IsInvalidArgument("no token can be sampled"));
}

TEST(AdjustedTest, LogitsThatAreNoneAreFoundThoughNotAllowed) {
  const std::vector<float> logits = {1.0f, std::nanf(""), 2.0f};
  Sampler sampler;
  EXPECT_THAT(sampler.Sample(logits, {.allowed_token_ids = {0}}, {}, {}, {}),
              IsDataLoss("token 1"));
  EXPECT_THAT(sampler.ScoreGiven(logits, 0, 1), IsDataLoss("token 1"));
}

TEST(AdjustedTest, ExtremePenaltiesKeepTokensPossible) {
  const std::vector<float> logits = {-2.0f, 3.0f, -kInf};
  TokenHistory history;
  history.AddPrompt(std::vector<int32_t>{0, 1, 2});
  Sampler sampler;
  for (const float penalty : {1e-38f, 1e38f}) {
    const SamplingParams params{.repetition_penalty = penalty, .allowed_token_ids = {0}};
    const auto token = sampler.Sample(logits, params, history, {}, {.logprob = true});
    ASSERT_THAT(token, IsOk());
    EXPECT_EQ(token->id, 0);
    const auto best = sampler.Sample(logits, {.temperature = 0.0f, .repetition_penalty = penalty},
                                     history, {}, {});
    ASSERT_THAT(best, IsOk());
    EXPECT_EQ(best->id, 1);
  }
}

TEST(ProcessedTest, RemovedTokensFollowByIdWithMinusInfinity) {
  const std::vector<float> logits = {1.0f, 4.0f, 3.0f, 2.0f};
  Sampler sampler;
  const auto token = sampler.Sample(logits, {.top_k = 2}, {}, {}, {.top = 4, .processed = true});
  ASSERT_THAT(token, IsOk());
  std::vector<int32_t> ids;
  for (const ScoredToken& scored : token->top) ids.push_back(scored.id);
  EXPECT_THAT(ids, ElementsAre(1, 2, 0, 3));
  EXPECT_EQ(token->top[2].logprob, -kInf);
  EXPECT_EQ(token->top[3].rank, 4u);
}

TEST(ScoreGivenTest, IsLogSoftmaxAndRankOfTheToken) {
  const std::vector<float> logits = RandomLogits(9);
  double total = 0.0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit));
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  Sampler sampler;
  for (const int32_t id : {0, 17, kVocab - 1}) {
    const auto token = sampler.ScoreGiven(logits, id, 4);
    ASSERT_THAT(token, IsOk());
    EXPECT_EQ(token->id, id);
    EXPECT_NEAR(token->score->logprob, logits[id] - std::log(total), 1e-5);
    const auto above = std::count_if(logits.begin(), logits.end(),
                                     [&](float logit) { return logit > logits[id]; });
    EXPECT_EQ(token->score->rank, above + 1);
    ASSERT_EQ(token->top.size(), 4u);
    for (uint32_t i = 0; i < 4; ++i) {
      EXPECT_EQ(token->top[i].id, order[i]);
      EXPECT_EQ(token->top[i].rank, i + 1);
      EXPECT_NEAR(token->top[i].logprob, logits[order[i]] - std::log(total), 1e-5);
    }
  }
}

}  // namespace
}  // namespace tlm
