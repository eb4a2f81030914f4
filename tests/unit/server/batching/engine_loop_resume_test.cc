// Outputs that go on where another replica stopped.
#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/server/batching/loop_bench.h"
#include "tests/unit/server/batching/requests.h"

namespace tlm {
namespace {

constexpr int64_t kContext = 512;

struct Whole {
  std::vector<SampledToken> tokens;
  StreamEnd end;
};

Whole RunToEnd(const Request& request, const LoopSetup& setup = {}) {
  LoopBench bench(setup);
  const auto reader = bench.Submit(request);
  bench.StepUntilNothingCanBeDone();
  EXPECT_EQ(reader->collected().starts.size(), 1);
  bench.ExpectNothingLeft();
  return {.tokens = reader->collected().tokens, .end = OnlyEnd(*reader)};
}

Request ResumedAfter(const Request& request, const Whole& whole, size_t tokens) {
  Request resumed = request;
  for (size_t i = 0; i < tokens; ++i) {
    resumed.generate()->generated.push_back(whole.tokens[i].id);
  }
  return resumed;
}

// However many tokens were received before: the rest is the rest of the undisturbed run.
void ExpectSameFromEveryCut(const Request& request, const LoopSetup& setup = {}) {
  const Whole whole = RunToEnd(request, setup);
  ASSERT_TRUE(whole.end.status.ok()) << whole.end.status;
  for (size_t cut = 0; cut <= whole.tokens.size(); ++cut) {
    const Whole rest = RunToEnd(ResumedAfter(request, whole, cut), setup);
    ASSERT_TRUE(rest.end.status.ok()) << rest.end.status;
    EXPECT_EQ(rest.end.reason, whole.end.reason);
    EXPECT_EQ(rest.end.matched_token, whole.end.matched_token);
    ExpectScores(rest.tokens,
                 {whole.tokens.begin() + static_cast<int64_t>(cut), whole.tokens.end()});
  }
}

Request Demanding() {
  Request request = GenerateRequest(Prompt(60), 40);
  request.generate()->sampling.temperature = 1.0f;
  request.generate()->sampling.seed = 5;
  request.generate()->sampling.repetition_penalty = 1.3f;
  request.generate()->sampling.frequency_penalty = 0.4f;
  request.generate()->sampling.presence_penalty = 0.2f;
  request.generate()->output_index = 3;
  request.generate()->score = {.logprob = true, .top = 2};
  return request;
}

TEST(EngineLoopResumeTest, GoesOnToTheLengthAskedForAndToTheEndOfTheContext) {
  ExpectSameFromEveryCut(Demanding());
  EXPECT_EQ(RunToEnd(Demanding()).tokens.size(), 40);
  ExpectSameFromEveryCut(
      Demanding(), LoopSetup{.own_thread = true}.With(&EngineOptions::max_prefill_tokens, 17));
  const LoopSetup narrow{.max_context = 90};
  ExpectSameFromEveryCut(Demanding(), narrow);
  EXPECT_EQ(RunToEnd(Demanding(), narrow).end.reason, FinishReason::kContextLength);
}

TEST(EngineLoopResumeTest, GoesOnToAnEndingId) {
  for (const bool eos : {false, true}) {
    Request request = Demanding();
    request.generate()->stop.min_new_tokens = 20;
    const std::vector<SampledToken> tokens = RunToEnd(request).tokens;
    const int32_t id = tokens[30].id;
    request.generate()->stop.ending_ids = eos ? EndingIds({id}) : EndingIds({}, {id});
    ExpectSameFromEveryCut(request);
    EXPECT_EQ(RunToEnd(request).end.reason, eos ? FinishReason::kEos : FinishReason::kStopToken);
  }
}

TEST(EngineLoopResumeTest, AWholeOutputIsEndedWithNothingComputed) {
  const Request request = Demanding();
  const Whole whole = RunToEnd(request);
  LoopBench bench;
  const Reader reader = bench.Submit(ResumedAfter(request, whole, whole.tokens.size()));
  EXPECT_FALSE(bench.Step());
  EXPECT_EQ(bench.model.launches(), 0);
  EXPECT_EQ(reader->collected().starts.size(), 1);
  EXPECT_TRUE(reader->collected().tokens.empty());
  EXPECT_EQ(OnlyEnd(*reader).reason, FinishReason::kLength);
  bench.ExpectNothingLeft();
}

TEST(EngineLoopResumeTest, WhatWasGeneratedElsewhereIsFoundInTheCacheLikeAnythingElse) {
  LoopBench bench;
  const Request request = GenerateRequest(Prompt(100), 200);
  bench.Submit(request);
  bench.StepUntilNothingCanBeDone();
  Request resumed = request;
  resumed.generate()->generated = GenerateAlone(request, kContext);
  resumed.generate()->generated.resize(150);
  const Reader reader = bench.Submit(resumed);
  bench.Finish();
  EXPECT_EQ(reader->collected().starts[0].cached_prompt_tokens, 100);  // of 192
  EXPECT_EQ(OnlyEnd(*reader).computed_prompt_tokens, 0);
  EXPECT_EQ(reader->collected().tokens.size(), 50);
}

}  // namespace
}  // namespace tlm
