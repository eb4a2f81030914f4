// Given tokens scored: those of prompts, and continuations of one prompt.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/unit/server/batching/loop_bench.h"
#include "tests/unit/server/batching/requests.h"

namespace tlm {
namespace {

Request WithPromptScores(Request request) {
  request.generate()->score_prompt = true;
  request.generate()->score.top = 2;
  return request;
}

TEST(EngineLoopScoresTest, EveryTokenOfEveryContinuationIsScored) {
  LoopBench bench;
  Request request = ScoreRequestFor(Prompt(100), {1, 5, 70, 1, 28, 2});
  request.score()->top = 3;
  const Reader reader = bench.Submit(request);
  bench.Finish();
  EXPECT_EQ(reader->collected().scored[0].token.top.size(), 3);
  EXPECT_EQ(bench.stats.prefill_tokens, 100 + 4 + 69 + 27 + 1);  // the prompt once
  EXPECT_EQ(bench.stats.decode_tokens, 0);
  const StreamEnd end = OnlyEnd(*reader);
  EXPECT_EQ(end.reason, FinishReason::kRowsComplete);
  EXPECT_EQ(end.computed_prompt_tokens, 100);
  EXPECT_EQ(end.kv_blocks_peak, 3);
  EXPECT_EQ(end.steps, 1 + 1 + 3 + 1 + 1);  // at most 32 rows a step
}

TEST(EngineLoopScoresTest, ContinuationsOfOneTokenTakeOneStep) {
  LoopBench bench;
  const Reader reader = bench.Submit(ScoreRequestFor(Prompt(40), {1, 1, 1, 1}));
  bench.Step();
  bench.ExpectAsAlone(reader);
}

TEST(EngineLoopScoresTest, PromptScoresComeBeforeTheFirstToken) {
  LoopBench bench({.max_logits_rows = 16});
  const Reader reader = bench.Submit(WithPromptScores(GenerateRequest(Prompt(30), 3)));
  bench.Step();
  EXPECT_EQ(reader->collected().scored.size(), 16);
  bench.Step();
  EXPECT_EQ(reader->collected().scored.size(), 29);
  EXPECT_EQ(reader->collected().tokens.size(), 1);
  bench.Finish();
  EXPECT_EQ(bench.stats.prefill_tokens, 30);
}

TEST(EngineLoopScoresTest, ScoresWaitForNoReader) {
  LoopBench bench;
  const Reader readers[] = {
      bench.Submit(WithPromptScores(GenerateRequest(Prompt(300), 3)), TokenStream::kUnbounded,
                   /*paused=*/true),
      bench.Submit(ScoreRequestFor(Prompt(50, 1), {60, 60}), TokenStream::kUnbounded,
                   /*paused=*/true)};
  bench.StepUntilNothingCanBeDone();
  EXPECT_EQ(bench.ended, 2);
  for (const Reader& reader : readers) reader->TakeNow();
  bench.Finish();
}

TEST(EngineLoopScoresTest, ABadRowEndsTheOffenderOnce) {
  LoopBench bench;
  constexpr int32_t kNan = 17;
  bench.model.set_nan_token(kNan);
  Request score = ScoreRequestFor({1, 2, 3}, {1, 1});
  score.score()->continuations = {{4, 5, 6}, {4, kNan, kNan, 6}, {4, 5}};
  const Reader generated =
      bench.Submit(WithPromptScores(GenerateRequest({1, 2, kNan, kNan, 3}, 5)));
  const Reader scored = bench.Submit(score);
  const Reader at_first = bench.Submit(ScoreRequestFor({1, 2, kNan}, {2, 2}));
  bench.Submit(ScoreRequestFor({1, 2, 3}, {1}));
  bench.Finish(/*others=*/{generated, scored, at_first});
  for (const Reader& reader : {generated, scored, at_first}) {
    EXPECT_EQ(OnlyEnd(*reader).status.code(), absl::StatusCode::kDataLoss);
  }
  EXPECT_EQ(generated->collected().scored.size(), 2);
  EXPECT_TRUE(generated->collected().tokens.empty());
  for (const int64_t i : {0, 1, 2}) {
    EXPECT_EQ(std::ssize(EntriesOf(scored->collected().scored, i)), 3 - i);
  }
  EXPECT_TRUE(at_first->collected().scored.empty());
}

}  // namespace
}  // namespace tlm
