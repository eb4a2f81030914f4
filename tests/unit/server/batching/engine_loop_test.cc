#include "server/batching/engine_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "model/base/errors.h"
#include "tests/unit/server/batching/loop_bench.h"
#include "tests/unit/server/batching/requests.h"

namespace tlm {
namespace {

using ::testing::HasSubstr;
using Collected = CollectingReader::Collected;

constexpr int64_t kContext = 512;

TEST(EngineLoopTest, AGenerationIsAStartItsTokensAndAnEnd) {
  LoopBench bench;
  const auto reader = bench.Submit(GenerateRequest(Prompt(100), 5));
  ASSERT_TRUE(bench.Step());
  EXPECT_EQ(reader->collected().starts.size(), 1);
  EXPECT_EQ(reader->collected().tokens.size(), 1);
  EXPECT_EQ(bench.stats.running_requests, 1);
  EXPECT_EQ(bench.stats.kv_blocks_used, 2);
  bench.StepUntilNothingCanBeDone();
  EXPECT_EQ(reader->collected().token_ids(),
            GenerateAlone(GenerateRequest(Prompt(100), 5), kContext));
  EXPECT_EQ(reader->collected().starts.size(), 1);
  EXPECT_TRUE(OnlyEnd(*reader).status.ok());
  EXPECT_EQ(OnlyEnd(*reader).reason, FinishReason::kLength);
  EXPECT_EQ(bench.stats.kv_blocks_used, 0);
  EXPECT_EQ(bench.stats.finished_requests, 1);
  EXPECT_EQ(bench.stats.prefill_tokens, 100);
  EXPECT_EQ(bench.stats.decode_tokens, 4);  // the last token is not computed
  EXPECT_EQ(bench.stats.steps, 5);
  EXPECT_EQ(bench.ended, 1);
}

TEST(EngineLoopTest, TheTokenThatStopsItIsDeliveredAndNamed) {
  LoopBench bench;
  const std::vector<int32_t> alone = GenerateAlone(GenerateRequest(Prompt(9), 40), kContext);
  Request request = GenerateRequest(Prompt(9), 40);
  request.generate()->stop.ending_ids = EndingIds({}, {alone[7]});
  const std::vector<int32_t> expected = GenerateAlone(request, kContext);
  const auto reader = bench.Submit(std::move(request));
  bench.StepUntilNothingCanBeDone();
  EXPECT_EQ(reader->collected().token_ids(), expected);
  EXPECT_EQ(OnlyEnd(*reader).reason, FinishReason::kStopToken);
  EXPECT_EQ(OnlyEnd(*reader).matched_token, alone[7]);
}

TEST(EngineLoopTest, EndsWhereTheContextIsFull) {
  LoopBench bench({.max_context = 70});
  const auto reader = bench.Submit(GenerateRequest(Prompt(60), 1000));
  const auto full = bench.Submit(GenerateRequest(Prompt(70), 1000));
  bench.StepUntilNothingCanBeDone();
  EXPECT_EQ(reader->collected().tokens.size(), 10);
  EXPECT_EQ(OnlyEnd(*reader).reason, FinishReason::kContextLength);
  EXPECT_EQ(full->collected().tokens.size(), 1);
  EXPECT_EQ(OnlyEnd(*full).reason, FinishReason::kContextLength);
}

TEST(EngineLoopTest, ScoresComeWithTheTokens) {
  LoopBench bench;
  Request request = GenerateRequest(Prompt(9), 2);
  request.generate()->score = {.logprob = true, .top = 3};
  const auto reader = bench.Submit(std::move(request));
  bench.StepUntilNothingCanBeDone();
  for (const SampledToken& token : reader->collected().tokens) {
    ASSERT_TRUE(token.score.has_value());
    EXPECT_EQ(token.score->rank, 1);
    EXPECT_EQ(token.top.size(), 3);
  }
}

TEST(EngineLoopTest, ForwardGivesTheLogitsOfEveryWantedPosition) {
  LoopBench bench(SetupWith(&EngineOptions::max_prefill_tokens, 37));
  const std::vector<int32_t> prompt = Prompt(150);
  const std::vector<int64_t> positions = {0, 36, 37, 38, 63, 64, 149};
  const auto reader = bench.Submit(ForwardRequest(prompt, positions, nullptr), /*capacity=*/2);
  bench.StepUntilNothingCanBeDone();
  const Collected collected = reader->collected();
  ASSERT_EQ(collected.rows.size(), positions.size());
  for (size_t i = 0; i < positions.size(); ++i) {
    const size_t length = static_cast<size_t>(positions[i]) + 1;
    EXPECT_EQ(collected.rows[i].position, positions[i]);
    EXPECT_EQ(collected.rows[i].logits,
              ScriptedModel::LogitsAfter(std::span(prompt).first(length)));
  }
  EXPECT_TRUE(OnlyEnd(*reader).status.ok());
  EXPECT_EQ(OnlyEnd(*reader).reason, FinishReason::kRowsComplete);
}

TEST(EngineLoopTest, ForwardStopsComputingAfterItsLastRow) {
  LoopBench bench;
  const auto reader = bench.Submit(ForwardRequest(Prompt(150), {3}, nullptr), 1);
  bench.StepUntilNothingCanBeDone();
  EXPECT_EQ(bench.stats.prefill_tokens, 4);
  EXPECT_EQ(OnlyEnd(*reader).computed_prompt_tokens, 4);
}

TEST(EngineLoopTest, AReaderThatDoesNotTakeStopsOnlyItself) {
  LoopBench bench;
  const auto slow = bench.Submit(ForwardRequest(Prompt(100), AllPositions(100), nullptr),
                                 /*capacity=*/8, /*paused=*/true);
  const auto other = bench.Submit(GenerateRequest(Prompt(10), 20));
  bench.StepUntilNothingCanBeDone();
  EXPECT_EQ(OnlyEnd(*other).reason, FinishReason::kLength);
  EXPECT_TRUE(slow->collected().ends.empty());
  slow->TakeNow();
  EXPECT_EQ(slow->collected().rows.size(), 8);
  ASSERT_TRUE(bench.Step());
  EXPECT_FALSE(bench.Step());
  slow->Resume();
  bench.StepUntilNothingCanBeDone();
  EXPECT_EQ(slow->collected().rows.size(), 100);
  EXPECT_TRUE(OnlyEnd(*slow).status.ok());
}

TEST(EngineLoopTest, AGenerationWaitsForASlowReader) {
  for (const int64_t capacity : {1, 2, 7}) {
    LoopBench bench;
    const Request request = GenerateRequest(Prompt(100), 30);
    const auto slow = bench.Submit(request, capacity, /*paused=*/true);
    const auto other = bench.Submit(GenerateRequest(Prompt(10), 40));
    bench.StepUntilNothingCanBeDone();
    EXPECT_EQ(OnlyEnd(*other).reason, FinishReason::kLength);
    EXPECT_EQ(slow->stream()->Room(), 0);
    EXPECT_EQ(bench.stats.parked_requests, 1);
    EXPECT_EQ(bench.stats.running_requests, 1);
    while (slow->collected().ends.empty()) {
      slow->TakeNow();
      bench.StepUntilNothingCanBeDone();
    }
    EXPECT_EQ(slow->collected().token_ids(), GenerateAlone(request, kContext));
    EXPECT_EQ(bench.stats.parked_requests, 0);
    EXPECT_EQ(bench.stats.kv_blocks_used, 0);
  }
}

TEST(EngineLoopTest, TakingFromAFullTokenStreamWakesTheEngine) {
  LoopBench bench;
  const auto slow = bench.Submit(GenerateRequest(Prompt(100), 30), 2, /*paused=*/true);
  bench.StepUntilNothingCanBeDone();
  slow->TakeNow();
  bench.queue->WaitForWork(absl::InfiniteDuration());  // returns, as it was woken
  EXPECT_TRUE(bench.Step());
}

TEST(EngineLoopTest, TimesAreThoseOfTheClock) {
  LoopBench bench(SetupWith(&EngineOptions::max_prefill_tokens, 50));
  bench.model.set_on_forward([&](const Batch&) { bench.clock.Advance(absl::Seconds(1)); });
  const auto reader = bench.Submit(GenerateRequest(Prompt(100), 4));
  bench.clock.Advance(absl::Seconds(10));
  bench.StepUntilNothingCanBeDone();
  EXPECT_EQ(reader->collected().starts[0].queue_time, absl::Seconds(10));
  const StreamEnd end = OnlyEnd(*reader);
  EXPECT_EQ(end.queue_time, absl::Seconds(10));
  EXPECT_EQ(end.prefill_time, absl::Seconds(2));
  EXPECT_EQ(end.decode_time, absl::Seconds(3));
  EXPECT_EQ(end.kv_blocks_peak, 2);
  EXPECT_EQ(end.computed_prompt_tokens, 100);
}

TEST(EngineLoopTest, TheQueueCountsARequestUntilItIsAdmitted) {
  LoopBench bench(SetupWith(&EngineOptions::max_running_requests, 1));
  bench.Submit(GenerateRequest(Prompt(10), 3));
  bench.Submit(GenerateRequest(Prompt(20), 3));
  bench.Step();
  EXPECT_EQ(bench.queue->waiting().requests, 1);
  EXPECT_EQ(bench.queue->waiting().prompt_tokens, 20);
  EXPECT_EQ(bench.stats.waiting_requests, 0);  // none is preempted
  bench.StepUntilNothingCanBeDone();
  EXPECT_EQ(bench.queue->waiting().requests, 0);
}

TEST(EngineLoopTest, MeasuresHowFastTheQueueDrains) {
  LoopBench bench(SetupWith(&EngineOptions::max_running_requests, 1));
  bench.model.set_on_forward([&](const Batch&) { bench.clock.Advance(absl::Seconds(2)); });
  for (int i = 0; i < 4; ++i) bench.Submit(GenerateRequest(Prompt(10), 1));
  bench.Step();
  bench.Step();
  bench.Step();
  const ServiceEstimates estimates = bench.queue->estimates();
  EXPECT_NEAR(estimates.drained_requests_per_second(), 0.5, 1e-9);
  EXPECT_NEAR(estimates.drained_prompt_tokens_per_second(), 5, 1e-9);
}

TEST(EngineLoopTest, MeasuresWhatItComputesByTheSecond) {
  LoopBench bench;
  bench.model.set_on_forward([&](const Batch&) { bench.clock.Advance(absl::Seconds(2)); });
  bench.Submit(GenerateRequest(Prompt(10), 100));
  bench.Step();
  ServiceEstimates estimates = bench.queue->estimates();
  EXPECT_NEAR(estimates.PrefillTokensPerSecond(bench.clock.Now()), 5, 1e-9);
  EXPECT_EQ(estimates.DecodeTokensPerSecond(bench.clock.Now()), 0);
  for (int i = 0; i < 60; ++i) bench.Step();
  estimates = bench.queue->estimates();
  EXPECT_NEAR(estimates.PrefillTokensPerSecond(bench.clock.Now()), 0, 1e-3);
  EXPECT_NEAR(estimates.DecodeTokensPerSecond(bench.clock.Now()), 0.5, 1e-3);
}

// The queue is behind a long request; deadlines of those in it pass out of reach while they wait.
TEST(EngineLoopTest, EndsWaitingWorkThatCannotBeDoneInTime) {
  LoopBench bench(SetupWith(&EngineOptions::max_running_requests, 1));
  bench.model.set_on_forward([&](const Batch&) { bench.clock.Advance(absl::Seconds(1)); });
  const auto running = bench.Submit(GenerateRequest(Prompt(10), 100));
  for (int i = 0; i < 10; ++i) bench.Step();
  const auto submit = [&](int64_t min_new_tokens, absl::Duration time) {
    Request request = GenerateRequest(Prompt(10), 200);
    request.generate()->stop.min_new_tokens = min_new_tokens;
    request.deadline = bench.clock.Now() + time;
    return bench.Submit(std::move(request));
  };
  const auto modest = submit(1, absl::Seconds(60));
  const auto demanding = submit(50, absl::Seconds(60));
  bench.Step();
  EXPECT_TRUE(demanding->collected().ends.empty());
  while (demanding->collected().ends.empty()) ASSERT_TRUE(bench.Step());
  EXPECT_LT(bench.clock.Now(), absl::UnixEpoch() + absl::Seconds(65));
  EXPECT_EQ(OnlyEnd(*demanding).status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(ReasonOf(OnlyEnd(*demanding).status), "INFEASIBLE");
  EXPECT_TRUE(demanding->collected().starts.empty());
  EXPECT_TRUE(modest->collected().ends.empty());
  while (modest->collected().ends.empty()) ASSERT_TRUE(bench.Step());
  EXPECT_EQ(ReasonOf(OnlyEnd(*modest).status), "EXPIRED_IN_QUEUE");
  bench.StepUntilNothingCanBeDone();
  EXPECT_TRUE(OnlyEnd(*running).status.ok());
  EXPECT_EQ(bench.queue->waiting().requests, 0);
}

TEST(EngineLoopTest, WhatTheCacheHoldsNeedNotBeComputedInTime) {
  LoopSetup setup;
  setup.options.max_running_requests = 1;
  setup.options.max_prefill_tokens = 64;
  LoopBench bench(setup);
  bench.model.set_on_forward([&](const Batch&) { bench.clock.Advance(absl::Seconds(1)); });
  bench.Submit(GenerateRequest(Prompt(320), 1));
  bench.StepUntilNothingCanBeDone();
  const auto submit = [&](uint32_t seed) {
    Request request = GenerateRequest(Prompt(320, seed), 1);
    request.deadline = bench.clock.Now() + absl::Milliseconds(2100);
    return bench.Submit(std::move(request));
  };
  const auto known = submit(0);
  const auto unknown = submit(1);
  bench.Step();
  EXPECT_EQ(ReasonOf(OnlyEnd(*unknown).status), "INFEASIBLE");
  EXPECT_TRUE(OnlyEnd(*known).status.ok());
}

TEST(EngineLoopTest, AFaultFailsTheStepsRequestsAndNoOthers) {
  LoopBench bench(SetupWith(&EngineOptions::max_running_requests, 2));
  const auto decoding = bench.Submit(GenerateRequest(Prompt(10, 1), 50));
  bench.Step();
  const auto prefilling = bench.Submit(GenerateRequest(Prompt(10, 2), 50));
  const auto waiting = bench.Submit(GenerateRequest(Prompt(10, 3), 50));
  bench.model.FailOnce(absl::UnknownError("the device fell off the bus"));
  ASSERT_TRUE(bench.Step());
  for (const auto& reader : {decoding, prefilling}) {
    EXPECT_EQ(OnlyEnd(*reader).status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(OnlyEnd(*reader).status.message()), HasSubstr("fell off the bus"));
  }
  EXPECT_EQ(decoding->collected().tokens.size(), 1);
  EXPECT_FALSE(bench.stats.fault.ok());
  EXPECT_EQ(bench.stats.kv_blocks_used, 0);
  bench.StepUntilNothingCanBeDone();
  EXPECT_EQ(waiting->collected().token_ids(),
            GenerateAlone(GenerateRequest(Prompt(10, 3), 50), kContext));
  EXPECT_TRUE(OnlyEnd(*waiting).status.ok());
}

TEST(EngineLoopTest, CountsFaultsUntilAStepSucceeds) {
  LoopBench bench;
  for (int i = 1; i <= 3; ++i) {
    bench.Submit(GenerateRequest(Prompt(10), 5));
    bench.model.FailOnce(absl::UnknownError("overheated"));
    bench.Step();
    EXPECT_THAT(std::string(bench.stats.fault.message()), HasSubstr("overheated"));
    EXPECT_EQ(bench.stats.consecutive_faults, i);
  }
  EXPECT_FALSE(bench.Step());
  EXPECT_EQ(bench.stats.consecutive_faults, 3);
  const auto reader = bench.Submit(GenerateRequest(Prompt(10), 5));
  bench.Step();
  EXPECT_TRUE(bench.stats.fault.ok());
  EXPECT_EQ(bench.stats.consecutive_faults, 0);
  bench.StepUntilNothingCanBeDone();
  EXPECT_EQ(reader->collected().token_ids(),
            GenerateAlone(GenerateRequest(Prompt(10), 5), kContext));
}

// The model spoils all that the failing batch could reach: what others share with it is computed
// anew.
TEST(EngineLoopTest, AFaultHarmsNoRequestThatSharesBlocks) {
  LoopBench bench;
  const Request request = GenerateRequest(Prompt(200), 60);
  const auto first = bench.Submit(request, /*capacity=*/3, /*paused=*/true);
  bench.StepUntilNothingCanBeDone();  // parked
  const auto second = bench.Submit(request);
  bench.Step();
  EXPECT_EQ(second->collected().starts[0].cached_prompt_tokens, 192);
  bench.model.FailOnce(absl::UnknownError("gone"));
  bench.Step();
  EXPECT_EQ(OnlyEnd(*second).status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(bench.stats.kv_blocks_cached, 0);
  const auto third = bench.Submit(request);
  first->Resume();
  bench.StepUntilNothingCanBeDone();
  for (const auto& reader : {first, third}) {
    EXPECT_TRUE(OnlyEnd(*reader).status.ok());
    EXPECT_EQ(reader->collected().token_ids(), GenerateAlone(request, kContext));
  }
  EXPECT_EQ(bench.stats.kv_blocks_used, 0);
}

TEST(EngineLoopTest, NonFiniteLogitsFailOnlyTheirRequest) {
  LoopBench bench;
  constexpr int32_t kNan = 17;
  bench.model.set_nan_token(kNan);
  std::vector<int32_t> bad = Prompt(10);
  bad.back() = kNan;
  std::vector<int32_t> good(10, 5);
  const auto generate = bench.Submit(GenerateRequest(bad, 5));
  const auto forward = bench.Submit(ForwardRequest(bad, {7, 9}, nullptr), 2);
  const auto other = bench.Submit(ForwardRequest(good, {8, 9}, nullptr), 2);
  bench.StepUntilNothingCanBeDone();
  EXPECT_EQ(OnlyEnd(*generate).status.code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(generate->collected().tokens.empty());
  EXPECT_EQ(OnlyEnd(*forward).status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(forward->collected().rows.size(), 1);
  EXPECT_TRUE(OnlyEnd(*other).status.ok());
  EXPECT_EQ(other->collected().rows[1].logits, ScriptedModel::LogitsAfter(good));
  EXPECT_EQ(bench.stats.kv_blocks_used, 0);
  EXPECT_TRUE(bench.stats.fault.ok());
}

TEST(EngineLoopTest, ABadRowInTheMiddleEndsAForwardOnce) {
  LoopBench bench;
  bench.model.set_nan_token(17);
  const auto reader = bench.Submit(ForwardRequest({1, 2, 17, 17, 3}, AllPositions(5), nullptr), 5);
  const auto other = bench.Submit(ForwardRequest({1, 2, 3}, AllPositions(3), nullptr), 5);
  bench.StepUntilNothingCanBeDone();
  EXPECT_EQ(reader->collected().rows.size(), 2);
  EXPECT_EQ(OnlyEnd(*reader).status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(other->collected().rows.size(), 3);
  EXPECT_EQ(other->collected().rows[2].logits,
            ScriptedModel::LogitsAfter(std::vector<int32_t>{1, 2, 3}));
}

TEST(EngineLoopTest, EndAllEndsWhatRunsWaitsAndHasJustArrived) {
  LoopBench bench(SetupWith(&EngineOptions::max_running_requests, 1));
  std::vector<std::shared_ptr<CollectingReader>> readers;
  readers.push_back(bench.Submit(GenerateRequest(Prompt(10), 50)));
  readers.push_back(bench.Submit(GenerateRequest(Prompt(10), 50)));
  bench.Step();
  readers.push_back(bench.Submit(GenerateRequest(Prompt(10), 50)));
  bench.loop.EndAll(absl::UnavailableError("bye"));
  bench.Deliver();
  for (const auto& reader : readers) {
    EXPECT_EQ(OnlyEnd(*reader).status.code(), absl::StatusCode::kUnavailable);
  }
  EXPECT_EQ(bench.ended, 3);
  EXPECT_EQ(bench.stats.kv_blocks_used, 0);
  EXPECT_EQ(bench.queue->waiting().requests, 0);
}

TEST(EngineLoopTest, KnowsTheNextDeadline) {
  LoopBench bench;
  EXPECT_EQ(bench.loop.NextDeadline(), absl::InfiniteFuture());
  const auto submit = [&](absl::Duration hard, absl::Duration soft) {
    Request request = GenerateRequest(Prompt(10), 10);
    request.deadline = bench.clock.Now() + hard;
    request.soft_deadline = bench.clock.Now() + soft;
    bench.Submit(std::move(request), /*capacity=*/1, /*paused=*/true);
    bench.StepUntilNothingCanBeDone();
  };
  for (const int seconds : {30, 10, 20}) submit(absl::Seconds(seconds), absl::InfiniteDuration());
  EXPECT_EQ(bench.loop.NextDeadline(), bench.clock.Now() + absl::Seconds(10));
  submit(absl::InfiniteDuration(), absl::Seconds(5));
  EXPECT_EQ(bench.loop.NextDeadline(), bench.clock.Now() + absl::Seconds(5));
}

TEST(EngineLoopTest, WorkThatExpiredInTheQueueIsNeverComputed) {
  LoopBench bench;
  int forwards = 0;
  bench.model.set_on_forward([&](const Batch&) { ++forwards; });
  Request request = GenerateRequest(Prompt(10), 5);
  request.deadline = bench.clock.Now() + absl::Seconds(1);
  const auto expired = bench.Submit(std::move(request));
  const auto cancelled = bench.Submit(GenerateRequest(Prompt(10), 5));
  cancelled->stream()->Detach();
  bench.clock.Advance(absl::Seconds(1));
  EXPECT_FALSE(bench.Step());
  EXPECT_EQ(forwards, 0);
  EXPECT_EQ(OnlyEnd(*expired).status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(OnlyEnd(*expired).queue_time, absl::Seconds(1));
  EXPECT_EQ(OnlyEnd(*cancelled).status.code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(expired->collected().starts.empty());
}

}  // namespace
}  // namespace tlm
