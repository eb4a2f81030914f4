#include "server/batching/engine_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

#include "model/base/errors.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/batching/loop_bench.h"
#include "tests/unit/server/batching/requests.h"

namespace tlm {
namespace {

using ::testing::HasSubstr;
TEST(EngineLoopTest, AGenerationIsAStartItsTokensAndAnEnd) {
  LoopBench bench;
  const Reader reader = bench.Submit(GenerateRequest(Prompt(100), 5));
  ASSERT_TRUE(bench.Step());
  EXPECT_EQ(reader->collected().starts.size(), 1);
  EXPECT_EQ(reader->collected().tokens.size(), 1);
  EXPECT_EQ(bench.stats.running_requests, 1);
  EXPECT_EQ(bench.stats.kv_blocks_used, 2);
  bench.Finish();
  EXPECT_EQ(OnlyEnd(*reader).reason, FinishReason::kLength);
  EXPECT_EQ(bench.stats.prefill_tokens, 100);
  EXPECT_EQ(bench.stats.decode_tokens, 4);  // the last token is not computed
  EXPECT_EQ(bench.stats.steps, 5);
}

TEST(EngineLoopTest, ForwardStopsComputingAfterItsLastRow) {
  LoopBench bench;
  const Reader reader = bench.Submit(ForwardRequest(Prompt(150), {3}, nullptr), 1);
  bench.Finish();
  EXPECT_EQ(bench.stats.prefill_tokens, 4);
  EXPECT_EQ(OnlyEnd(*reader).reason, FinishReason::kRowsComplete);
  EXPECT_EQ(OnlyEnd(*reader).computed_prompt_tokens, 4);
}

TEST(EngineLoopTest, TakingFromAFullTokenStreamWakesTheEngine) {
  LoopBench bench;
  const Reader slow = bench.Submit(GenerateRequest(Prompt(100), 30), 2, /*paused=*/true);
  bench.StepUntilNothingCanBeDone();
  slow->TakeNow();
  bench.queue->WaitForWork(absl::InfiniteDuration());  // returns, as it was woken
  EXPECT_TRUE(bench.Step());
}

TEST(EngineLoopTest, TheQueueCountsARequestUntilItIsAdmitted) {
  LoopBench bench(SetupWith(&EngineOptions::max_running_requests, 1));
  bench.Submit(GenerateRequest(Prompt(10), 3));
  bench.Submit(ScoreRequestFor(Prompt(20), {3, 4, 5}));
  EXPECT_EQ(bench.queue->waiting().prompt_tokens, 42);
  bench.Step();
  EXPECT_EQ(bench.queue->waiting().requests, 1);
  EXPECT_EQ(bench.queue->waiting().prompt_tokens, 32);
  EXPECT_EQ(bench.stats.waiting_requests, 0);  // none is preempted
  bench.Finish();
}

// Steps take two seconds.
TEST(EngineLoopTest, MeasuresHowFastTheQueueDrainsAndWhatItComputesByTheSecond) {
  LoopBench bench(SetupWith(&EngineOptions::max_running_requests, 1));
  bench.model.set_on_forward([&](const Batch&) { bench.clock.Advance(absl::Seconds(2)); });
  for (int i = 0; i < 3; ++i) bench.Submit(GenerateRequest(Prompt(10), 1));
  bench.Submit(GenerateRequest(Prompt(10), 100));
  for (int i = 0; i < 3; ++i) bench.Step();
  ServiceEstimates estimates = bench.queue->estimates();
  EXPECT_NEAR(estimates.drained_requests_per_second(), 0.5, 1e-9);
  EXPECT_NEAR(estimates.drained_prompt_tokens_per_second(), 5, 1e-9);
  EXPECT_NEAR(estimates.PrefillTokensPerSecond(bench.clock.Now()), 5, 1e-9);
  EXPECT_EQ(estimates.DecodeTokensPerSecond(bench.clock.Now()), 0);
  for (int i = 0; i < 60; ++i) bench.Step();
  estimates = bench.queue->estimates();
  EXPECT_NEAR(estimates.PrefillTokensPerSecond(bench.clock.Now()), 0, 1e-3);
  EXPECT_NEAR(estimates.DecodeTokensPerSecond(bench.clock.Now()), 0.5, 1e-3);
}

// A long request runs; deadlines of those that wait pass out of reach meanwhile.
TEST(EngineLoopTest, EndsWaitingWorkThatCannotBeDoneInTime) {
  LoopBench bench(SetupWith(&EngineOptions::max_running_requests, 1));
  bench.model.set_on_forward([&](const Batch&) { bench.clock.Advance(absl::Seconds(1)); });
  bench.Submit(GenerateRequest(Prompt(10), 100));
  for (int i = 0; i < 10; ++i) bench.Step();
  const auto submit = [&](int64_t min_new_tokens, absl::Duration time) {
    Request request = GenerateRequest(Prompt(10), 200);
    request.generate()->stop.min_new_tokens = min_new_tokens;
    request.deadline = bench.clock.Now() + time;
    return bench.Submit(std::move(request));
  };
  const Reader modest = submit(1, absl::Seconds(60));
  const Reader demanding = submit(50, absl::Seconds(60));
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
  bench.Finish(/*others=*/{modest, demanding});
}

TEST(EngineLoopTest, WhatTheCacheHoldsNeedNotBeComputedInTime) {
  LoopBench bench(SetupWith(&EngineOptions::max_running_requests, 1)
                      .With(&EngineOptions::max_prefill_tokens, 64));
  bench.model.set_on_forward([&](const Batch&) { bench.clock.Advance(absl::Seconds(1)); });
  bench.Submit(GenerateRequest(Prompt(320), 1));
  bench.StepUntilNothingCanBeDone();
  const auto submit = [&](uint32_t seed) {
    Request request = GenerateRequest(Prompt(320, seed), 1);
    request.deadline = bench.clock.Now() + absl::Milliseconds(2100);
    return bench.Submit(std::move(request));
  };
  submit(0);
  const Reader unknown = submit(1);
  bench.Finish(/*others=*/{unknown});
  EXPECT_EQ(ReasonOf(OnlyEnd(*unknown).status), "INFEASIBLE");
}

TEST(EngineLoopTest, AFaultFailsTheStepsRequestsAndNoOthers) {
  LoopBench bench(SetupWith(&EngineOptions::max_running_requests, 2));
  const Reader decoding = bench.Submit(GenerateRequest(Prompt(10, 1), 50));
  bench.Step();
  const Reader prefilling = bench.Submit(GenerateRequest(Prompt(10, 2), 50));
  bench.Submit(GenerateRequest(Prompt(10, 3), 50));  // waits
  bench.model.FailOnce(absl::UnknownError("the device fell off the bus"));
  ASSERT_TRUE(bench.Step());
  for (const Reader& reader : {decoding, prefilling}) {
    EXPECT_THAT(OnlyEnd(*reader).status, IsInternal("fell off the bus"));
  }
  EXPECT_EQ(decoding->collected().tokens.size(), 1);
  EXPECT_FALSE(bench.stats.fault.ok());
  EXPECT_EQ(bench.stats.kv_blocks_used, 0);
  bench.Finish(/*others=*/{decoding, prefilling});
}

TEST(EngineLoopTest, CountsFaultsUntilAStepSucceeds) {
  LoopBench bench;
  std::set<Reader> failed;
  for (int i = 1; i <= 3; ++i) {
    failed.insert(bench.Submit(GenerateRequest(Prompt(10), 5)));
    bench.model.FailOnce(absl::UnknownError("overheated"));
    bench.Step();
    EXPECT_THAT(std::string(bench.stats.fault.message()), HasSubstr("overheated"));
    EXPECT_EQ(bench.stats.consecutive_faults, i);
  }
  EXPECT_FALSE(bench.Step());
  EXPECT_EQ(bench.stats.consecutive_faults, 3);
  bench.Submit(GenerateRequest(Prompt(10), 5));
  bench.Step();
  EXPECT_TRUE(bench.stats.fault.ok());
  EXPECT_EQ(bench.stats.consecutive_faults, 0);
  bench.Finish(failed);
}

// The model spoils all that the failing batch could reach: what others share with it is computed
// anew.
TEST(EngineLoopTest, AFaultHarmsNoRequestThatSharesBlocks) {
  LoopBench bench;
  const Request request = GenerateRequest(Prompt(200), 60);
  const Reader first = bench.Submit(request, /*capacity=*/3, /*paused=*/true);
  bench.StepUntilNothingCanBeDone();  // parked
  const Reader second = bench.Submit(request);
  bench.Step();
  EXPECT_EQ(second->collected().starts[0].cached_prompt_tokens, 192);
  bench.model.FailOnce(absl::UnknownError("gone"));
  bench.Step();
  EXPECT_EQ(OnlyEnd(*second).status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(bench.stats.kv_blocks_cached, 0);
  bench.Submit(request);
  first->Resume();
  bench.Finish(/*others=*/{second});
}

TEST(EngineLoopTest, NonFiniteLogitsFailOnlyTheirRequest) {
  LoopBench bench;
  constexpr int32_t kNan = 17;
  bench.model.set_nan_token(kNan);
  std::vector<int32_t> bad = Prompt(10);
  bad.back() = kNan;
  const Reader generate = bench.Submit(GenerateRequest(bad, 5));
  const Reader forward = bench.Submit(ForwardRequest(bad, {7, 9}, nullptr), 2);
  // Two bad rows in the middle end it once.
  const Reader middle =
      bench.Submit(ForwardRequest({1, 2, kNan, kNan, 3}, AllPositions(5), nullptr), 5);
  bench.Submit(ForwardRequest(std::vector<int32_t>(10, 5), {8, 9}, nullptr), 2);
  bench.Finish(/*others=*/{generate, forward, middle});
  for (const Reader& reader : {generate, forward, middle}) {
    EXPECT_EQ(OnlyEnd(*reader).status.code(), absl::StatusCode::kDataLoss);
  }
  EXPECT_TRUE(generate->collected().tokens.empty());
  EXPECT_EQ(forward->collected().rows.size(), 1);
  EXPECT_EQ(middle->collected().rows.size(), 2);
  EXPECT_TRUE(bench.stats.fault.ok());
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

}  // namespace
}  // namespace tlm
