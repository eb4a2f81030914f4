// Given tokens scored: those of prompts, and continuations of one prompt.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "tests/unit/server/batching/loop_bench.h"
#include "tests/unit/server/batching/requests.h"

namespace tlm {
namespace {

using Collected = CollectingReader::Collected;

constexpr int64_t kContext = 512;

void ExpectAllContinuations(const CollectingReader& reader, const Request& request) {
  EXPECT_TRUE(OnlyEnd(reader).status.ok()) << OnlyEnd(reader).status;
  EXPECT_EQ(OnlyEnd(reader).reason, FinishReason::kRowsComplete);
  const std::vector<ScoredEntry> scored = reader.collected().scored;
  const auto expected = ContinuationScoresAlone(request);
  size_t tokens = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    tokens += expected[i].size();
    ExpectScores(EntriesOf(scored, static_cast<int64_t>(i)), expected[i]);
  }
  EXPECT_EQ(scored.size(), tokens);
}

// Every token of the prompt but the first, in order.
void ExpectPromptScores(const CollectingReader& reader, const Request& request) {
  const std::vector<ScoredEntry> scored = reader.collected().scored;
  std::vector<SampledToken> tokens;
  for (size_t i = 0; i < scored.size(); ++i) {
    ASSERT_EQ(scored[i].index, static_cast<int64_t>(i) + 1);
    tokens.push_back(scored[i].token);
  }
  ExpectScores(tokens, ScoresAlone(request.prompt, 1, request.generate()->score.top));
}

Request WithPromptScores(Request request, uint32_t top = 2) {
  request.generate()->score_prompt = true;
  request.generate()->score.top = top;
  return request;
}

TEST(EngineLoopScoresTest, EveryTokenOfEveryContinuationIsScored) {
  LoopBench bench;
  Request request = ScoreRequestFor(Prompt(100), {1, 5, 70, 1, 28, 2});
  request.score()->top = 3;
  const auto reader = bench.Submit(request);
  bench.StepUntilNothingCanBeDone();
  ExpectAllContinuations(*reader, request);
  EXPECT_EQ(reader->collected().scored[0].token.top.size(), 3);
  EXPECT_EQ(reader->collected().starts.size(), 1);
  EXPECT_EQ(bench.stats.prefill_tokens, 100 + 4 + 69 + 27 + 1);  // the prompt once
  EXPECT_EQ(bench.stats.decode_tokens, 0);
  const StreamEnd end = OnlyEnd(*reader);
  EXPECT_EQ(end.computed_prompt_tokens, 100);
  EXPECT_EQ(end.kv_blocks_peak, 3);
  EXPECT_EQ(end.steps, 1 + 1 + 3 + 1 + 1);  // at most 32 rows a step
  EXPECT_EQ(bench.stats.kv_blocks_used, 0);
}

TEST(EngineLoopScoresTest, ContinuationsOfOneTokenTakeOneStep) {
  LoopBench bench;
  const Request request = ScoreRequestFor(Prompt(40), {1, 1, 1, 1});
  const auto reader = bench.Submit(request);
  bench.Step();
  ExpectAllContinuations(*reader, request);
}

TEST(EngineLoopScoresTest, ContinuationsMayFillTheContext) {
  LoopBench bench({.blocks = 2, .max_context = 128});
  const Request request = ScoreRequestFor(Prompt(65), {63, 1, 63});
  const auto reader = bench.Submit(request);
  bench.StepUntilNothingCanBeDone();
  ExpectAllContinuations(*reader, request);
}

TEST(EngineLoopScoresTest, TheOrderOfContinuationsDoesNotMatter) {
  Request request = ScoreRequestFor(Prompt(60), {7, 1, 40, 3, 9});
  std::vector<std::vector<SampledToken>> forwards;
  for (const bool reverse : {false, true}) {
    LoopBench bench;
    auto& continuations = request.score()->continuations;
    if (reverse) std::reverse(continuations.begin(), continuations.end());
    const auto reader = bench.Submit(request);
    bench.StepUntilNothingCanBeDone();
    for (int64_t i = 0; i < 5; ++i) {
      const auto entries = EntriesOf(reader->collected().scored, reverse ? 4 - i : i);
      if (reverse) {
        ExpectScores(entries, forwards[static_cast<size_t>(i)]);
      } else {
        forwards.push_back(entries);
      }
    }
  }
}

TEST(EngineLoopScoresTest, ChunksAndRowsMayBeAsSmallAsOne) {
  for (const int64_t most : {1, 3, 64}) {
    LoopSetup setup;
    setup.options.max_prefill_tokens = most;
    setup.max_logits_rows = most;
    LoopBench bench(setup);
    const Request request = ScoreRequestFor(Prompt(70), {4, 1, 11});
    const Request generate = WithPromptScores(GenerateRequest(Prompt(70, 1), 5));
    const auto scores = bench.Submit(request);
    const auto generated = bench.Submit(generate);
    bench.StepUntilNothingCanBeDone();
    ExpectAllContinuations(*scores, request);
    ExpectPromptScores(*generated, generate);
    EXPECT_EQ(generated->collected().token_ids(), GenerateAlone(generate, kContext));
  }
}

TEST(EngineLoopScoresTest, PromptScoresComeBeforeTheFirstToken) {
  LoopBench bench({.max_logits_rows = 16});
  const Request request = WithPromptScores(GenerateRequest(Prompt(30), 3));
  const auto reader = bench.Submit(request);
  bench.Step();
  EXPECT_EQ(reader->collected().scored.size(), 16);
  bench.Step();
  EXPECT_EQ(reader->collected().scored.size(), 29);
  EXPECT_EQ(reader->collected().tokens.size(), 1);
  bench.StepUntilNothingCanBeDone();
  ExpectPromptScores(*reader, request);
  EXPECT_EQ(bench.stats.prefill_tokens, 30);
}

TEST(EngineLoopScoresTest, ScoresWaitForNoReader) {
  LoopBench bench;
  const Request generate = WithPromptScores(GenerateRequest(Prompt(300), 3));
  const Request score = ScoreRequestFor(Prompt(50, 1), {60, 60});
  const auto first = bench.Submit(generate, TokenStream::kUnbounded, /*paused=*/true);
  const auto second = bench.Submit(score, TokenStream::kUnbounded, /*paused=*/true);
  bench.StepUntilNothingCanBeDone();
  EXPECT_EQ(bench.ended, 2);
  first->TakeNow();
  second->TakeNow();
  ExpectPromptScores(*first, generate);
  ExpectAllContinuations(*second, score);
}

// A senior one that decodes takes the other's blocks in the middle of its work.
template <typename InTheMiddle>
void PreemptInTheMiddle(const Request& request, InTheMiddle in_the_middle,
                        std::shared_ptr<CollectingReader>* reader) {
  LoopSetup setup;
  setup.blocks = 6;
  setup.max_context = 256;
  setup.options.max_prefill_tokens = 1;
  LoopBench bench(setup);
  const auto senior = bench.Submit(GenerateRequest(Prompt(60), 190));
  while (senior->collected().tokens.empty()) bench.Step();
  *reader = bench.Submit(request);
  while (bench.stats.preemptions == 0) ASSERT_TRUE(bench.Step());
  EXPECT_TRUE(in_the_middle((*reader)->collected()));
  bench.StepUntilNothingCanBeDone();
  EXPECT_EQ(senior->collected().token_ids(), GenerateAlone(GenerateRequest(Prompt(60), 190), 256));
  EXPECT_EQ(OnlyEnd(**reader).preemptions, 1);
  EXPECT_EQ(bench.stats.kv_blocks_used, 0);
}

TEST(EngineLoopScoresTest, NoPromptTokenIsScoredTwiceAfterPreemption) {
  const Request request = WithPromptScores(GenerateRequest(Prompt(150, 1), 20));
  std::shared_ptr<CollectingReader> reader;
  PreemptInTheMiddle(
      request, [](const Collected& collected) { return collected.scored.size() > 10; }, &reader);
  ExpectPromptScores(*reader, request);
  EXPECT_EQ(reader->collected().token_ids(), GenerateAlone(request, 256));
}

TEST(EngineLoopScoresTest, NoContinuationIsScoredTwiceAfterPreemption) {
  const Request request = ScoreRequestFor(Prompt(80, 1), {10, 1, 90, 2});
  std::shared_ptr<CollectingReader> reader;
  const auto in_the_third = [](const Collected& collected) {
    return EntriesOf(collected.scored, 2).size() > 10 && EntriesOf(collected.scored, 3).size() == 1;
  };
  PreemptInTheMiddle(request, in_the_third, &reader);
  ExpectAllContinuations(*reader, request);
  EXPECT_EQ(OnlyEnd(*reader).computed_prompt_tokens, 80);
}

TEST(EngineLoopScoresTest, ABadRowEndsTheOffenderOnce) {
  LoopBench bench;
  constexpr int32_t kNan = 17;
  bench.model.set_nan_token(kNan);
  Request generate = WithPromptScores(GenerateRequest({1, 2, kNan, kNan, 3}, 5));
  Request score = ScoreRequestFor({1, 2, 3}, {1, 1});
  score.score()->continuations = {{4, 5, 6}, {4, kNan, kNan, 6}, {4, 5}};
  Request first_row = ScoreRequestFor({1, 2, kNan}, {2, 2});
  const Request good = ScoreRequestFor({1, 2, 3}, {1});
  const auto generated = bench.Submit(generate);
  const auto scored = bench.Submit(score);
  const auto at_first = bench.Submit(first_row);
  const auto other = bench.Submit(good);
  bench.StepUntilNothingCanBeDone();
  EXPECT_EQ(OnlyEnd(*generated).status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(generated->collected().scored.size(), 2);
  EXPECT_TRUE(generated->collected().tokens.empty());
  EXPECT_EQ(OnlyEnd(*scored).status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(EntriesOf(scored->collected().scored, 0).size(), 3);
  EXPECT_EQ(EntriesOf(scored->collected().scored, 1).size(), 2);
  EXPECT_EQ(EntriesOf(scored->collected().scored, 2).size(), 1);
  EXPECT_EQ(OnlyEnd(*at_first).status.code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(at_first->collected().scored.empty());
  ExpectAllContinuations(*other, good);
  EXPECT_EQ(bench.stats.kv_blocks_used, 0);
}

TEST(EngineLoopScoresTest, TheQueueCountsContinuationsToo) {
  LoopBench bench(SetupWith(&EngineOptions::max_running_requests, 1));
  bench.Submit(GenerateRequest(Prompt(10), 3));
  bench.Submit(ScoreRequestFor(Prompt(20), {3, 4, 5}));
  EXPECT_EQ(bench.queue->waiting().prompt_tokens, 42);
  bench.Step();
  EXPECT_EQ(bench.queue->waiting().prompt_tokens, 32);
  bench.StepUntilNothingCanBeDone();
  EXPECT_EQ(bench.queue->waiting().prompt_tokens, 0);
}

TEST(EngineLoopScoresTest, AnUnsatisfiableDrawEndsOnlyItsOwnRequest) {
  LoopBench bench;
  Request request = GenerateRequest(Prompt(10), 5);
  request.generate()->sampling.allowed_token_ids = {7};
  request.generate()->stop.ending_ids = EndingIds({7});
  request.generate()->stop.min_new_tokens = 2;
  const auto reader = bench.Submit(std::move(request));
  const auto other = bench.Submit(GenerateRequest(Prompt(10), 5));
  bench.StepUntilNothingCanBeDone();
  EXPECT_EQ(OnlyEnd(*reader).status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(OnlyEnd(*other).status.ok());
}

}  // namespace
}  // namespace tlm
