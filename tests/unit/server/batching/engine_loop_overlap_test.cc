// With a model that takes two batches at a time, a step begins before the results of the one before
// are there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tests/unit/server/batching/loop_bench.h"
#include "tests/unit/server/batching/requests.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

constexpr int64_t kContext = 512;

LoopSetup Overlapping(LoopSetup setup = {}) {
  setup.max_launched = 2;
  return setup;
}

class EngineLoopOverlapTest : public ::testing::Test {
 protected:
  explicit EngineLoopOverlapTest(const LoopSetup& setup = Overlapping()) : bench_(setup) {
    bench_.model.set_on_forward([this](const Batch& batch) {
      sequences_.push_back(batch.sequences);
      bench_.clock.Advance(absl::Milliseconds(10));
    });
  }
  static void ExpectAsAlone(const CollectingReader& reader, const Request& request,
                            int64_t max_context = kContext) {
    EXPECT_TRUE(OnlyEnd(reader).status.ok()) << OnlyEnd(reader).status;
    EXPECT_EQ(reader.collected().token_ids(), GenerateAlone(request, max_context));
  }
  // One that ends with the eos id after `tokens` tokens, of which it was the first.
  static Request EndingAfter(size_t tokens, int64_t prompt_tokens) {
    for (uint32_t seed = 0;; ++seed) {
      Request request = GenerateRequest(Prompt(prompt_tokens, seed), 100);
      request.generate()->sampling.temperature = 1.0f;
      const int32_t last = GenerateAlone(request, kContext)[tokens - 1];
      request.generate()->stop.ending_ids = EndingIds({last});
      if (GenerateAlone(request, kContext).size() == tokens) return request;
    }
  }

  std::vector<int64_t> sequences_;  // of each batch
  LoopBench bench_;
};

TEST_F(EngineLoopOverlapTest, TheModelAlwaysHasTheNextStep) {
  const Request request = GenerateRequest(Prompt(10), 20);
  const auto reader = bench_.Submit(request);
  for (size_t tokens = 1; tokens <= 20; ++tokens) {
    EXPECT_TRUE(bench_.Step());
    EXPECT_THAT(reader->collected().tokens, SizeIs(tokens));
  }
  EXPECT_FALSE(bench_.Step());
  ExpectAsAlone(*reader, request);
  // Every token but the last is computed before it is known, and none behind the known end.
  EXPECT_EQ(bench_.model.launches(), 20);
  EXPECT_EQ(bench_.stats.model_runs.direct, 20) << "as the model tells";
  EXPECT_EQ(bench_.model.launches_ahead(), 19);
  EXPECT_EQ(bench_.model.unknown_tokens(), 19);
}

TEST_F(EngineLoopOverlapTest, AStepIsLaunchedBeforeTheOneBeforeIsWaitedFor) {
  bench_.Submit(GenerateRequest(Prompt(10), 20));
  std::vector<int64_t> launches;  // when results are asked for
  bench_.model.set_on_wait([&] { launches.push_back(bench_.model.launches()); });
  for (int i = 0; i < 4; ++i) bench_.Step();
  bench_.model.set_on_wait(nullptr);
  EXPECT_THAT(launches, ElementsAre(2, 3, 4, 5));
}

TEST_F(EngineLoopOverlapTest, ASurplusTokenReachesNoReader) {
  const Request request = EndingAfter(/*tokens=*/5, /*prompt_tokens=*/10);
  const auto reader = bench_.Submit(request);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(bench_.Step());
  ExpectAsAlone(*reader, request);
  const StreamEnd end = OnlyEnd(*reader);
  EXPECT_EQ(end.reason, FinishReason::kEos);
  EXPECT_EQ(end.steps, 5);
  EXPECT_EQ(end.computed_prompt_tokens, 10);
  EXPECT_EQ(bench_.ended, 1);
  EXPECT_EQ(bench_.stats.running_requests, 0);
  EXPECT_EQ(bench_.stats.kv_blocks_used, 0);
  // The step in vain ends in its own time.
  EXPECT_EQ(bench_.model.launches(), 6);
  EXPECT_TRUE(bench_.Step());
  EXPECT_FALSE(bench_.Step());
  EXPECT_EQ(bench_.model.launches(), 6);
  EXPECT_EQ(bench_.stats.decode_tokens, 4);
  EXPECT_EQ(bench_.stats.prefill_tokens, 10);
  EXPECT_THAT(reader->collected().tokens, SizeIs(5));
  EXPECT_THAT(reader->collected().ends, SizeIs(1));
}

// The last token of the block is not verified.
TEST_F(EngineLoopOverlapTest, ABlockThatASurplusTokenFillsIsNotPublished) {
  for (const int64_t prompt : {59, 60, 61}) {
    const Request request = EndingAfter(/*tokens=*/4, prompt);
    LoopBench bench(Overlapping());
    const auto reader = bench.Submit(request);
    bench.StepUntilNothingCanBeDone();
    ExpectAsAlone(*reader, request);
    // Of prompt + 4 tokens all but the last are known to be sound.
    EXPECT_EQ(bench.stats.kv_blocks_cached, (prompt + 3) / kBlockTokens);
    EXPECT_EQ(bench.model.launches(), 5);
  }
}

TEST_F(EngineLoopOverlapTest, WhatEndsIsDroppedFromTheStepAfterTheNext) {
  const Request request = EndingAfter(/*tokens=*/5, /*prompt_tokens=*/10);
  const Request other = GenerateRequest(Prompt(20, 1), 20);
  const auto ending = bench_.Submit(request);
  const auto going_on = bench_.Submit(other);
  bench_.StepUntilNothingCanBeDone();
  ExpectAsAlone(*ending, request);
  ExpectAsAlone(*going_on, other);
  EXPECT_THAT(sequences_, SizeIs(20));
  for (size_t step = 0; step < sequences_.size(); ++step) {
    EXPECT_EQ(sequences_[step], step < 6 ? 2 : 1);
  }
}

TEST_F(EngineLoopOverlapTest, BlocksOfOneThatWasLetGoServeOthersAtOnce) {
  LoopBench bench(Overlapping({.blocks = 8}));
  const auto leaving = bench.Submit(GenerateRequest(Prompt(500), 10));
  for (int i = 0; i < 2; ++i) bench.Step();
  leaving->stream()->Detach();
  const Request request = GenerateRequest(Prompt(450, 1), 20);
  const auto reader = bench.Submit(request);
  bench.Step();  // launches it beside the surplus token
  EXPECT_EQ(OnlyEnd(*leaving).status.code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(leaving->collected().tokens, SizeIs(2));
  EXPECT_EQ(bench.model.launches(), 4);
  bench.StepUntilNothingCanBeDone();
  ExpectAsAlone(*reader, request);
  EXPECT_EQ(bench.stats.kv_blocks_used, 0);
}

TEST_F(EngineLoopOverlapTest, PenaltiesWaitForTheTokensTheyCount) {
  Request request = GenerateRequest(Prompt(10), 20);
  request.generate()->sampling.frequency_penalty = 1.5f;
  const auto reader = bench_.Submit(request);
  bench_.StepUntilNothingCanBeDone();
  ExpectAsAlone(*reader, request);
  EXPECT_EQ(bench_.model.launches(), 20);
  EXPECT_EQ(bench_.model.launches_ahead(), 0);
}

TEST_F(EngineLoopOverlapTest, StepsOverlapAgainWhenPenaltiesAreGone) {
  Request penalised = GenerateRequest(Prompt(10), 5);
  penalised.generate()->sampling.repetition_penalty = 1.5f;
  const Request plain = GenerateRequest(Prompt(20, 1), 20);
  const auto first = bench_.Submit(penalised);
  const auto second = bench_.Submit(plain);
  bench_.StepUntilNothingCanBeDone();
  ExpectAsAlone(*first, penalised);
  ExpectAsAlone(*second, plain);
  // Its fifth token is known to be the last one: what follows need not wait for it.
  EXPECT_EQ(bench_.model.launches(), 20);
  EXPECT_EQ(bench_.model.launches_ahead(), 15);
}

TEST_F(EngineLoopOverlapTest, TokensDrawnOnTheHostAreWaitedFor) {
  Request request = GenerateRequest(Prompt(10), 5);
  request.generate()->sampling.logit_bias = {{7, 1.0f}};
  const Request other = GenerateRequest(Prompt(20, 1), 20);
  const auto first = bench_.Submit(request);
  const auto second = bench_.Submit(other);
  bench_.StepUntilNothingCanBeDone();
  ExpectAsAlone(*first, request);
  ExpectAsAlone(*second, other);
  EXPECT_EQ(bench_.model.launches(), 20);
  EXPECT_EQ(bench_.model.launches_ahead(), 14);
}

// A prompt's chunks draw nothing: there is nothing to wait for.
TEST_F(EngineLoopOverlapTest, PromptsWithPenaltiesAreComputedAhead) {
  LoopSetup setup = Overlapping();
  setup.options.max_prefill_tokens = 10;
  LoopBench bench(setup);
  Request request = GenerateRequest(Prompt(100), 1);
  request.generate()->sampling.presence_penalty = 1;
  const auto reader = bench.Submit(request);
  bench.StepUntilNothingCanBeDone();
  ExpectAsAlone(*reader, request);
  EXPECT_EQ(bench.model.launches(), 10);
  EXPECT_EQ(bench.model.launches_ahead(), 9);
}

TEST_F(EngineLoopOverlapTest, EndingIdsAreHeldBackByTheCountOfUnknownTokensToo) {
  for (int64_t least = 1; least < 6; ++least) {
    Request request = GenerateRequest(Prompt(10), 20);
    request.generate()->stop.min_new_tokens = least;
    std::vector<int32_t> even;
    for (int32_t id = 0; id < ScriptedModel::kVocabSize; id += 2) even.push_back(id);
    request.generate()->stop.ending_ids = EndingIds(std::move(even));
    const auto reader = bench_.Submit(request);
    bench_.StepUntilNothingCanBeDone();
    ExpectAsAlone(*reader, request);
    EXPECT_GT(reader->collected().tokens.size(), static_cast<size_t>(least));
  }
  EXPECT_GT(bench_.model.unknown_tokens(), 10);
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
  const auto reader = bench_.Submit(request);
  bench_.StepUntilNothingCanBeDone();
  EXPECT_EQ(OnlyEnd(*reader).status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(reader->collected().tokens, SizeIs(first + 1));
  EXPECT_EQ(bench_.stats.kv_blocks_used, 0);
  EXPECT_TRUE(bench_.stats.fault.ok());
}

TEST_F(EngineLoopOverlapTest, AFaultTakesTheStepBehindItToo) {
  std::vector<std::shared_ptr<CollectingReader>> hit;
  hit.push_back(bench_.Submit(GenerateRequest(Prompt(100), 20)));
  bench_.Step();
  hit.push_back(bench_.Submit(GenerateRequest(Prompt(30, 1), 20)));
  const Request request = GenerateRequest(Prompt(30, 2), 20);
  std::shared_ptr<CollectingReader> arriving;
  bench_.model.set_on_wait([&] {
    if (arriving == nullptr) arriving = bench_.Submit(request);
  });
  bench_.model.FailOnce(absl::UnknownError("gone"));
  bench_.Step();  // the first one's second token, launched together with the other's prompt
  for (const auto& reader : hit) {
    EXPECT_EQ(OnlyEnd(*reader).status.code(), absl::StatusCode::kInternal);
  }
  EXPECT_THAT(hit[0]->collected().tokens, SizeIs(1));
  EXPECT_THAT(hit[1]->collected().tokens, SizeIs(0));
  EXPECT_EQ(bench_.stats.kv_blocks_used, 0);
  EXPECT_EQ(bench_.stats.kv_blocks_cached, 0);
  EXPECT_EQ(bench_.stats.consecutive_faults, 1);
  bench_.StepUntilNothingCanBeDone();
  ExpectAsAlone(*arriving, request);
  EXPECT_EQ(bench_.stats.consecutive_faults, 0);
}

TEST_F(EngineLoopOverlapTest, AFaultOfAStepInVainFailsNoRequest) {
  const Request request = EndingAfter(/*tokens=*/3, /*prompt_tokens=*/70);
  const auto reader = bench_.Submit(request);
  for (int i = 0; i < 3; ++i) bench_.Step();
  ExpectAsAlone(*reader, request);
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
    const auto readers = bench_.SubmitOutputs(request, 4);
    bench_.Step();
    for (const auto& reader : readers) EXPECT_THAT(reader->collected().tokens, SizeIs(1));
    EXPECT_EQ(bench_.model.launches_ahead(), ahead + 1);
    bench_.StepUntilNothingCanBeDone();
    for (uint32_t i = 0; i < readers.size(); ++i) {
      ExpectAsAlone(*readers[i], OnlyOutput(request, i));
    }
  }
  EXPECT_EQ(bench_.model.copies(), 4 * 3);
}

TEST_F(EngineLoopOverlapTest, OutputsDroppedWhileTheyAreDrawnDoNotBegin) {
  LoopSetup setup = Overlapping();
  setup.options.max_prefill_tokens = 35;
  LoopBench bench(setup);
  const Request request = GenerateRequest(Prompt(70), 3);
  const auto readers = bench.SubmitOutputs(request, 3);
  bench.Step();
  EXPECT_EQ(bench.model.launches(), 2);  // the second chunk, with all draws, is under way
  readers[1]->stream()->Detach();
  bench.StepUntilNothingCanBeDone();
  EXPECT_EQ(OnlyEnd(*readers[1]).status.code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(readers[1]->collected().tokens, SizeIs(0));
  for (const uint32_t i : {0, 2}) ExpectAsAlone(*readers[i], OnlyOutput(request, i));
}

// No batch has more draws than sequences (the model checks it), whatever else runs.
TEST_F(EngineLoopOverlapTest, OutputsBeyondTheRowsOfAStepAreDrawnTogetherAllTheSame) {
  for (const int max_launched : {1, 2}) {
    LoopSetup setup{.max_logits_rows = 3};
    setup.max_launched = max_launched;
    setup.options.max_running_requests = 5;
    LoopBench bench(setup);
    const Request other = GenerateRequest(Prompt(30, 1), 40);
    Request request = GenerateRequest(Prompt(70), 30);
    request.generate()->sampling.temperature = 1.5f;
    const auto before = bench.Submit(other);
    bench.Step();
    const auto readers = bench.SubmitOutputs(request, 5);
    const auto behind = bench.Submit(other);
    bench.StepUntilNothingCanBeDone();
    ExpectAsAlone(*before, other);
    ExpectAsAlone(*behind, other);
    for (uint32_t i = 0; i < readers.size(); ++i) {
      ExpectAsAlone(*readers[i], OnlyOutput(request, i));
    }
  }
}

TEST_F(EngineLoopOverlapTest, PreemptedSequencesKeepTheTokensOnTheirWay) {
  LoopBench bench(Overlapping({.blocks = 5, .max_context = 256}));
  std::vector<Request> requests;
  std::vector<std::shared_ptr<CollectingReader>> readers;
  for (uint32_t i = 0; i < 4; ++i) {
    requests.push_back(GenerateRequest(Prompt(40 + 9 * i, i), 150));
    requests.back().generate()->sampling.temperature = 1.0f;
    readers.push_back(bench.Submit(requests.back()));
  }
  bench.StepUntilNothingCanBeDone();
  EXPECT_GT(bench.stats.preemptions, 2);
  EXPECT_GT(bench.model.launches_ahead(), bench.model.launches() / 2);
  for (size_t i = 0; i < readers.size(); ++i) ExpectAsAlone(*readers[i], requests[i], 256);
  EXPECT_EQ(bench.stats.kv_blocks_used, 0);
}

TEST_F(EngineLoopOverlapTest, WhatIsFlushedWhileAStepComputesIsNotFound) {
  const Request request = GenerateRequest(Prompt(200), 70);
  const auto reader = bench_.Submit(request);
  for (int i = 0; i < 3; ++i) bench_.Step();
  bench_.loop.FlushPrefixCache();
  bench_.StepUntilNothingCanBeDone();
  ExpectAsAlone(*reader, request);
  EXPECT_EQ(bench_.stats.kv_blocks_cached, 0);
  const auto again = bench_.Submit(request);
  bench_.StepUntilNothingCanBeDone();
  ExpectAsAlone(*again, request);
  EXPECT_EQ(again->collected().starts[0].cached_prompt_tokens, 0);
}

TEST_F(EngineLoopOverlapTest, EndingAllWaitsForWhatComputes) {
  const auto reader = bench_.Submit(GenerateRequest(Prompt(10), 20));
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
  LoopSetup setup = Overlapping({.max_logits_rows = 5});
  setup.options.max_prefill_tokens = 7;
  LoopBench bench(setup);
  const std::vector<int32_t> prompt = Prompt(100);
  const auto rows = bench.Submit(ForwardRequest(prompt, AllPositions(100), nullptr));
  const Request scoring = ScoreRequestFor(Prompt(20, 1), {3, 1, 30});
  const auto scores = bench.Submit(scoring);
  bench.StepUntilNothingCanBeDone();
  ASSERT_THAT(rows->collected().rows, SizeIs(100));
  for (size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(rows->collected().rows[i].position, static_cast<int64_t>(i));
    EXPECT_EQ(rows->collected().rows[i].logits,
              ScriptedModel::LogitsAfter(std::span(prompt).first(i + 1)));
  }
  const auto expected = ContinuationScoresAlone(scoring);
  for (size_t i = 0; i < expected.size(); ++i) {
    ExpectScores(EntriesOf(scores->collected().scored, static_cast<int64_t>(i)), expected[i]);
  }
  EXPECT_GT(bench.model.launches_ahead(), bench.model.launches() / 2);
}

// A step's time is that between the ends of two steps: it began before the first of them.
TEST_F(EngineLoopOverlapTest, PacesAreMeasuredFromEndToEnd) {
  bench_.Submit(GenerateRequest(Prompt(10), 200));
  for (int i = 0; i < 100; ++i) bench_.Step();
  const ServiceEstimates estimates = bench_.queue->estimates();
  EXPECT_EQ(estimates.LeastTime({.decode_steps = 1}, bench_.clock.Now()), absl::Milliseconds(10));
}

}  // namespace
}  // namespace tlm
