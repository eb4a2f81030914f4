// With a model that takes two batches at a time, a step begins before the results of the one before
// are there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/unit/server/batching/loop_bench.h"
#include "tests/unit/server/batching/requests.h"

namespace tlm {
namespace {

using ::testing::SizeIs;

constexpr int64_t kContext = 512;

LoopSetup Overlapping(LoopSetup setup = {}) {
  setup.max_launched = 2;
  return setup;
}

class EngineLoopOverlapTest : public ::testing::Test {
 protected:
  EngineLoopOverlapTest() {
    bench_.model.set_on_forward([this](const Batch& batch) {
      sequences_.push_back(batch.sequences);
      bench_.clock.Advance(absl::Milliseconds(10));
    });
  }
  // One that ends with the eos id after `tokens` tokens; the id stands nowhere before.
  static Request EndingAfter(size_t tokens, int64_t prompt_tokens) {
    for (uint32_t seed = 0;; ++seed) {
      Request request = GenerateRequest(Prompt(prompt_tokens, seed), 100);
      request.generate()->sampling.temperature = 1.0f;
      const int32_t last = GenerateAlone(request, kContext)[tokens - 1];
      request.generate()->stop.ending_ids = EndingIds({last});
      if (GenerateAlone(request, kContext).size() == tokens) return request;
    }
  }

  std::vector<int64_t> sequences_;  // for each batch
  LoopBench bench_{Overlapping()};
};

TEST_F(EngineLoopOverlapTest, TheModelAlwaysHasTheNextStep) {
  const Reader reader = bench_.Submit(GenerateRequest(Prompt(10), 20));
  std::vector<int64_t> launches;  // when results are asked for
  bench_.model.set_on_wait([&] { launches.push_back(bench_.model.launches()); });
  for (size_t tokens = 1; tokens <= 20; ++tokens) {
    EXPECT_TRUE(bench_.Step());
    EXPECT_THAT(reader->collected().tokens, SizeIs(tokens));
    EXPECT_EQ(launches.at(tokens - 1), std::min<int64_t>(tokens + 1, 20));
  }
  EXPECT_FALSE(bench_.Step());
  bench_.Finish();
  // Every token but the last is computed before it is known, and none after the known end.
  EXPECT_EQ(bench_.model.launches(), 20);
  EXPECT_EQ(bench_.stats.model_runs.direct, 20) << "as the model tells";
  EXPECT_EQ(bench_.model.launches_ahead(), 19);
  EXPECT_EQ(bench_.model.unknown_tokens(), 19);
}

TEST_F(EngineLoopOverlapTest, ASurplusTokenReachesNoReader) {
  const Reader reader = bench_.Submit(EndingAfter(/*tokens=*/5, /*prompt_tokens=*/10));
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(bench_.Step());
  bench_.ExpectAsAlone(reader);
  bench_.ExpectNothingLeft();
  const StreamEnd end = OnlyEnd(*reader);
  EXPECT_EQ(end.reason, FinishReason::kEos);
  EXPECT_EQ(end.steps, 5);
  EXPECT_EQ(end.computed_prompt_tokens, 10);
  // The step in vain ends in its own time.
  EXPECT_EQ(bench_.model.launches(), 6);
  EXPECT_TRUE(bench_.Step());
  EXPECT_FALSE(bench_.Step());
  EXPECT_EQ(bench_.model.launches(), 6);
  EXPECT_EQ(bench_.stats.decode_tokens, 4);
  EXPECT_EQ(bench_.stats.prefill_tokens, 10);
  EXPECT_THAT(reader->collected().tokens, SizeIs(5));
}

// The last token of the block is not verified.
TEST_F(EngineLoopOverlapTest, ABlockThatASurplusTokenFillsIsNotPublished) {
  for (const int64_t prompt : {59, 60, 61}) {
    LoopBench bench(Overlapping());
    bench.Submit(EndingAfter(/*tokens=*/4, prompt));
    bench.Finish();
    // Of prompt + 4 tokens all but the last are known to be sound.
    EXPECT_EQ(bench.stats.kv_blocks_cached, (prompt + 3) / kBlockTokens);
    EXPECT_EQ(bench.model.launches(), 5);
  }
}

TEST_F(EngineLoopOverlapTest, WhatEndsIsDroppedFromTheStepAfterTheNext) {
  bench_.Submit(EndingAfter(/*tokens=*/5, /*prompt_tokens=*/10));
  bench_.Submit(GenerateRequest(Prompt(20, 1), 20));
  bench_.Finish();
  EXPECT_THAT(sequences_, SizeIs(20));
  for (size_t step = 0; step < sequences_.size(); ++step) {
    EXPECT_EQ(sequences_[step], step < 6 ? 2 : 1);
  }
}

TEST_F(EngineLoopOverlapTest, BlocksOfOneThatWasLetGoServeOthersAtOnce) {
  LoopBench bench(Overlapping({.blocks = 8}));
  const Reader leaving = bench.Submit(GenerateRequest(Prompt(500), 10));
  for (int i = 0; i < 2; ++i) bench.Step();
  leaving->stream()->Detach();
  bench.Submit(GenerateRequest(Prompt(450, 1), 20));
  bench.Step();  // launches it beside the surplus token
  EXPECT_EQ(OnlyEnd(*leaving).status.code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(leaving->collected().tokens, SizeIs(2));
  EXPECT_EQ(bench.model.launches(), 4);
  bench.Finish(/*others=*/{leaving});
}

// What a request's sampling leaves of the overlap. A token that the next one depends on is waited
// for; the 20 steps of another request overlap as soon as that one's last token is known to come.
struct Dependency {
  const char* name;
  void (*set)(SamplingParams& sampling);
  int64_t max_new_tokens;
  bool beside_another;
  int64_t launches_ahead;
};
class DependencyTest : public EngineLoopOverlapTest,
                       public ::testing::WithParamInterface<Dependency> {};

TEST_P(DependencyTest, TokensThatTheNextOnesDependOnAreWaitedFor) {
  Request request = GenerateRequest(Prompt(10), GetParam().max_new_tokens);
  GetParam().set(request.generate()->sampling);
  bench_.Submit(request);
  if (GetParam().beside_another) bench_.Submit(GenerateRequest(Prompt(20, 1), 20));
  bench_.Finish();
  EXPECT_EQ(bench_.model.launches(), 20);
  EXPECT_EQ(bench_.model.launches_ahead(), GetParam().launches_ahead);
}

INSTANTIATE_TEST_SUITE_P(
    Dependencies, DependencyTest,
    ::testing::Values(Dependency{"Penalty",
                                 [](auto& sampling) { sampling.frequency_penalty = 1.5f; }, 20,
                                 false, 0},
                      Dependency{"PenaltyThatIsGoneAgain",
                                 [](auto& sampling) { sampling.repetition_penalty = 1.5f; }, 5,
                                 true, 15},
                      Dependency{"DrawnOnTheHost",
                                 [](auto& sampling) {
                                   sampling.logit_bias = {{7, 1.0f}};
                                 },
                                 5, true, 14}),
    [](const auto& info) { return info.param.name; });

// A prompt's chunks draw nothing: there is nothing to wait for.
TEST_F(EngineLoopOverlapTest, PromptsWithPenaltiesAreComputedAhead) {
  LoopBench bench(Overlapping().With(&EngineOptions::max_prefill_tokens, 10));
  Request request = GenerateRequest(Prompt(100), 1);
  request.generate()->sampling.presence_penalty = 1;
  bench.Submit(request);
  bench.Finish();
  EXPECT_EQ(bench.model.launches(), 10);
  EXPECT_EQ(bench.model.launches_ahead(), 9);
}

TEST_F(EngineLoopOverlapTest, ADrawThatFailsEndsItsOwnOutput) {
  const Request request = GenerateRequest(Prompt(10), 20);
  const std::vector<int32_t> alone = GenerateAlone(request, kContext);
  size_t first = 0;  // where a token stands for the first time, in the prompt too
  const auto seen = [&](size_t i) {
    return std::count(request.prompt.begin(), request.prompt.end(), alone[i]) > 0 ||
           std::count(alone.begin(), alone.begin() + i, alone[i]) > 0;
  };
  while (first < 3 || seen(first)) ++first;
  bench_.model.set_nan_token(alone[first]);
  const Reader reader = bench_.Submit(request);
  bench_.Finish(/*others=*/{reader});
  EXPECT_EQ(OnlyEnd(*reader).status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(reader->collected().tokens, SizeIs(first + 1));
  EXPECT_TRUE(bench_.stats.fault.ok());
}

TEST_F(EngineLoopOverlapTest, AFaultTakesTheStepAfterItToo) {
  const Reader first = bench_.Submit(GenerateRequest(Prompt(100), 20));
  bench_.Step();
  const Reader second = bench_.Submit(GenerateRequest(Prompt(30, 1), 20));
  Reader arriving;
  bench_.model.set_on_wait([&] {
    if (arriving == nullptr) arriving = bench_.Submit(GenerateRequest(Prompt(30, 2), 20));
  });
  bench_.model.FailOnce(absl::UnknownError("gone"));
  bench_.Step();  // the first one's second token, launched together with the other's prompt
  for (const Reader& reader : {first, second}) {
    EXPECT_EQ(OnlyEnd(*reader).status.code(), absl::StatusCode::kInternal);
  }
  EXPECT_THAT(first->collected().tokens, SizeIs(1));
  EXPECT_THAT(second->collected().tokens, SizeIs(0));
  EXPECT_EQ(bench_.stats.kv_blocks_used, 0);
  EXPECT_EQ(bench_.stats.kv_blocks_cached, 0);
  EXPECT_EQ(bench_.stats.consecutive_faults, 1);
  bench_.Finish(/*others=*/{first, second});
  EXPECT_EQ(bench_.stats.consecutive_faults, 0);
}

TEST_F(EngineLoopOverlapTest, AFaultOfAStepInVainFailsNoRequest) {
  const Reader reader = bench_.Submit(EndingAfter(/*tokens=*/3, /*prompt_tokens=*/70));
  for (int i = 0; i < 3; ++i) bench_.Step();
  bench_.ExpectAsAlone(reader);
  EXPECT_EQ(bench_.stats.kv_blocks_cached, 1);
  bench_.model.FailOnce(absl::UnknownError("gone"));
  EXPECT_TRUE(bench_.Step());
  EXPECT_EQ(bench_.stats.consecutive_faults, 1);
  EXPECT_EQ(bench_.stats.kv_blocks_cached, 0);
  EXPECT_FALSE(bench_.Step());
}

// Their parent's next token is being computed, in the blocks they share or copy.
TEST_F(EngineLoopOverlapTest, BranchesBeginBesideAParentThatGoesOn) {
  for (const int64_t prompt : {1, 63, 64, 65, 128, 150}) {
    Request request = GenerateRequest(Prompt(prompt), 80);
    request.generate()->sampling.temperature = 1.5f;
    const int64_t ahead = bench_.model.launches_ahead();
    const Readers readers = bench_.SubmitOutputs(request, 4);
    bench_.Step();
    for (const Reader& reader : readers) EXPECT_THAT(reader->collected().tokens, SizeIs(1));
    EXPECT_EQ(bench_.model.launches_ahead(), ahead + 1);
    bench_.Finish();
  }
  EXPECT_EQ(bench_.model.copies(), 4 * 3);
}

TEST_F(EngineLoopOverlapTest, OutputsDroppedWhileTheyAreDrawnDoNotBegin) {
  LoopBench bench(Overlapping().With(&EngineOptions::max_prefill_tokens, 35));
  const Readers readers = bench.SubmitOutputs(GenerateRequest(Prompt(70), 3), 3);
  bench.Step();
  EXPECT_EQ(bench.model.launches(), 2);  // the second chunk, with all draws, is under way
  readers[1]->stream()->Detach();
  bench.Finish(/*others=*/{readers[1]});
  EXPECT_EQ(OnlyEnd(*readers[1]).status.code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(readers[1]->collected().tokens, SizeIs(0));
}

TEST_F(EngineLoopOverlapTest, WhatIsFlushedWhileAStepComputesIsNotFound) {
  const Request request = GenerateRequest(Prompt(200), 70);
  bench_.Submit(request);
  for (int i = 0; i < 3; ++i) bench_.Step();
  bench_.loop.FlushPrefixCache();
  bench_.Finish();
  EXPECT_EQ(bench_.stats.kv_blocks_cached, 0);
  const Reader again = bench_.Submit(request);
  bench_.Finish();
  EXPECT_EQ(again->collected().starts[0].cached_prompt_tokens, 0);
}

TEST_F(EngineLoopOverlapTest, EndingAllWaitsForWhatComputes) {
  const Reader reader = bench_.Submit(GenerateRequest(Prompt(10), 20));
  bench_.Step();
  bench_.loop.EndAll(absl::UnavailableError("stopping"));
  bench_.Deliver();
  EXPECT_EQ(OnlyEnd(*reader).status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(reader->collected().tokens, SizeIs(1));
  EXPECT_THAT(sequences_, SizeIs(2));  // nothing is left with the model
  EXPECT_EQ(bench_.model.launches(), 2);
  EXPECT_EQ(bench_.stats.kv_blocks_used, 0);
}

TEST_F(EngineLoopOverlapTest, RowsAreDeliveredAndScoredInTheirOrder) {
  LoopBench bench(Overlapping({.max_logits_rows = 5}).With(&EngineOptions::max_prefill_tokens, 7));
  bench.Submit(ForwardRequest(Prompt(100), AllPositions(100), nullptr));
  bench.Submit(ScoreRequestFor(Prompt(20, 1), {3, 1, 30}));
  bench.Finish();
  EXPECT_GT(bench.model.launches_ahead(), bench.model.launches() / 2);
}

// A step's time runs from the end of the step before to its own end: it began before the first.
TEST_F(EngineLoopOverlapTest, PacesAreMeasuredFromEndToEnd) {
  bench_.Submit(GenerateRequest(Prompt(10), 200));
  for (int i = 0; i < 100; ++i) bench_.Step();
  const ServiceEstimates estimates = bench_.queue->estimates();
  EXPECT_EQ(estimates.LeastTime({.decode_steps = 1}, bench_.clock.Now()), absl::Milliseconds(10));
}

}  // namespace
}  // namespace tlm
