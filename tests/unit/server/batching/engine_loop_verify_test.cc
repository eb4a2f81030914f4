// Claimed outputs: computed like prompts, compared with what is drawn.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "tests/unit/server/batching/loop_bench.h"
#include "tests/unit/server/batching/requests.h"

namespace tlm {
namespace {

constexpr int64_t kContext = 512;

Request Claim(Request request, std::vector<int32_t> ids) {
  request.generate()->claimed = std::move(ids);
  return request;
}

// A request with everything that depends on the output's own tokens.
Request Sampled(int64_t prompt_tokens, int64_t max_new_tokens, uint64_t seed) {
  Request request =
      GenerateRequest(Prompt(prompt_tokens, static_cast<uint32_t>(seed)), max_new_tokens);
  SamplingParams& sampling = request.generate()->sampling;
  sampling.temperature = 0.9f;
  sampling.seed = seed;
  sampling.repetition_penalty = 1.3f;
  sampling.frequency_penalty = 0.4f;
  request.generate()->stop.ending_ids = EndingIds({3});
  request.generate()->stop.min_new_tokens = max_new_tokens;
  return request;
}

class VerifyTest : public ::testing::TestWithParam<int> {
 protected:
  LoopSetup Setup() const { return {.max_logits_rows = 16, .max_launched = GetParam()}; }
};

TEST_P(VerifyTest, AnOwnOutputIsComputedLikeAPrompt) {
  LoopBench bench(Setup());
  const Request request = Sampled(30, 100, 5);
  const Reader reader = bench.Submit(Claim(request, GenerateAlone(request, kContext)));
  bench.Finish();
  EXPECT_EQ(OnlyEnd(*reader).reason, FinishReason::kLength);
  // 16 rows a step.
  EXPECT_LE(OnlyEnd(*reader).steps, 100 / 16 + 2);
}

TEST_P(VerifyTest, EveryChangedTokenIsFound) {
  const Request request = Sampled(70, 40, 6);
  const std::vector<int32_t> alone = GenerateAlone(request, kContext);
  for (size_t changed = 0; changed < alone.size(); ++changed) {
    LoopBench bench(Setup());
    std::vector<int32_t> claimed = alone;
    claimed[changed] = (claimed[changed] + 1) % ScriptedModel::kVocabSize;
    const auto reader = bench.Submit(Claim(request, claimed));
    bench.StepUntilNothingCanBeDone();
    // The last one is what is drawn instead.
    const std::vector<int32_t> expected(alone.begin(), alone.begin() + changed + 1);
    EXPECT_EQ(reader->collected().token_ids(), expected);
    EXPECT_EQ(OnlyEnd(*reader).reason, FinishReason::kRowsComplete);
  }
}

TEST_P(VerifyTest, APartOfAnOutputIsVerified) {
  const Request request = Sampled(64, 40, 7);
  const std::vector<int32_t> alone = GenerateAlone(request, kContext);
  for (const size_t count : {1, 2, 15, 16, 17, 39}) {
    LoopBench bench(Setup());
    const std::vector<int32_t> claimed(alone.begin(), alone.begin() + count);
    const auto reader = bench.Submit(Claim(request, claimed));
    bench.StepUntilNothingCanBeDone();
    EXPECT_EQ(reader->collected().token_ids(), claimed);
    EXPECT_EQ(OnlyEnd(*reader).reason, FinishReason::kRowsComplete);
  }
}

TEST_P(VerifyTest, AnOutputThatEndsBeforeItsClaimEndsThere) {
  LoopBench bench(Setup());
  Request request = Sampled(20, 40, 8);
  request.generate()->stop.ending_ids = EndingIds();
  const std::vector<int32_t> alone = GenerateAlone(request, kContext);
  // A token that was not drawn before.
  const auto stop = std::find_if(alone.begin() + 17, alone.end(), [&alone](const int32_t& id) {
    return std::find(alone.begin(), alone.end(), id) == alone.begin() + (&id - alone.data());
  });
  ASSERT_LT(stop, alone.end() - 1);
  request.generate()->stop.ending_ids = EndingIds({}, {*stop});
  request.generate()->stop.min_new_tokens = 0;
  const auto reader = bench.Submit(Claim(request, alone));
  bench.StepUntilNothingCanBeDone();
  EXPECT_EQ(reader->collected().token_ids(), std::vector<int32_t>(alone.begin(), stop + 1));
  EXPECT_EQ(OnlyEnd(*reader).reason, FinishReason::kStopToken);
}

TEST_P(VerifyTest, VerifiesBesideOthersThroughPreemption) {
  LoopSetup setup = Setup();
  setup.blocks = 8;
  LoopBench bench(setup);
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const Request request = Sampled(50 + 10 * static_cast<int64_t>(seed), 90, seed);
    bench.Submit(seed % 2 == 0 ? request : Claim(request, GenerateAlone(request, kContext)));
  }
  bench.Finish();
}

INSTANTIATE_TEST_SUITE_P(Launched, VerifyTest, ::testing::Values(1, 2));

}  // namespace
}  // namespace tlm
