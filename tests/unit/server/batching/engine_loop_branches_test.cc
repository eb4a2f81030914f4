// Requests for several outputs: one prompt, computed once, and a stream for each output.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "model/base/errors.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/server/batching/loop_bench.h"
#include "tests/unit/server/batching/requests.h"

namespace tlm {
namespace {

using ::testing::HasSubstr;
constexpr int64_t kContext = 512;

Request SampledRequest(int64_t prompt, int64_t max_new_tokens, uint32_t seed = 0) {
  Request request = GenerateRequest(Prompt(prompt, seed), max_new_tokens);
  request.generate()->sampling.temperature = 1.0f;
  request.generate()->sampling.seed = 11 + seed;
  return request;
}

class PromptLengthTest : public ::testing::TestWithParam<int64_t> {};

TEST_P(PromptLengthTest, EveryOutputIsWhatItIsAloneAndThePromptIsComputedOnce) {
  LoopBench bench;
  const Readers readers = bench.SubmitOutputs(SampledRequest(GetParam(), 80), 5);
  bench.Step();
  EXPECT_EQ(bench.stats.running_requests, 5);
  // Full blocks are shared; the next one of the first output is planned already.
  const bool whole = GetParam() % kBlockTokens == 0;
  EXPECT_EQ(bench.stats.kv_blocks_used, GetParam() / kBlockTokens + (whole ? 1 : 5));
  bench.Finish();
  EXPECT_EQ(bench.stats.prefill_tokens, GetParam());
  EXPECT_EQ(bench.stats.decode_tokens, 5 * 79);
  EXPECT_EQ(bench.model.copies(), whole ? 0 : 4);
  std::set<std::vector<int32_t>> different;
  for (const Reader& reader : readers) different.insert(reader->collected().token_ids());
  EXPECT_EQ(different.size(), 5);
}

INSTANTIATE_TEST_SUITE_P(Lengths, PromptLengthTest,
                         ::testing::Values(1, 63, 64, 65, 100, 128, 200));

TEST(EngineLoopBranchesTest, EachOutputTellsWhatItUsedItself) {
  LoopBench bench;
  bench.model.set_on_forward([&](const Batch&) { bench.clock.Advance(absl::Seconds(1)); });
  const Readers readers = bench.SubmitOutputs(SampledRequest(200, 5), 3);
  bench.clock.Advance(absl::Seconds(10));
  bench.Finish();
  for (const Reader& reader : readers) {
    const StreamEnd end = OnlyEnd(*reader);
    const bool first = reader == readers[0];
    EXPECT_EQ(end.computed_prompt_tokens, first ? 200 : 0);
    EXPECT_EQ(end.kv_blocks_peak, first ? 4 : 1);
    EXPECT_EQ(end.steps, first ? 5 : 4);
    EXPECT_EQ(end.queue_time, absl::Seconds(10));
    EXPECT_EQ(end.prefill_time, absl::Seconds(1));
    EXPECT_EQ(end.decode_time, absl::Seconds(4));
  }
}

TEST(EngineLoopBranchesTest, CountsAsOneRequestInTheQueueAndUntilItsLastOutputEnds) {
  LoopBench bench(SetupWith(&EngineOptions::max_running_requests, 4));
  Request request = SampledRequest(10, 40);
  request.generate()->stop.ending_ids =
      EndingIds({}, {GenerateAlone(OnlyOutput(request, 1), kContext)[5]});
  const Readers readers = bench.SubmitOutputs(request, 3);
  const Readers waiting = bench.SubmitOutputs(SampledRequest(20, 2), 3);
  bench.Step();
  EXPECT_EQ(bench.queue->waiting().requests, 1);
  EXPECT_EQ(bench.queue->waiting().prompt_tokens, 20);
  EXPECT_EQ(bench.stats.waiting_requests, 0);
  const auto ended = [](const Readers& all) {
    return std::ranges::all_of(all, [](const Reader& r) { return !r->collected().ends.empty(); });
  };
  while (!ended(readers)) {
    EXPECT_EQ(bench.stats.finished_requests, ended(waiting) ? 1 : 0);
    ASSERT_TRUE(bench.Step());
  }
  bench.Finish();
}

TEST(EngineLoopBranchesTest, WithoutAPlaceForItABranchFindsThePromptInTheCache) {
  for (const bool cached : {false, true}) {
    LoopBench bench(LoopSetup{.max_logits_rows = 2}.With(&EngineOptions::prefix_cache, cached));
    bench.SubmitOutputs(SampledRequest(100, 30), 4);
    bench.Step();
    EXPECT_EQ(bench.stats.running_requests, 2);
    EXPECT_EQ(bench.stats.waiting_requests, 2);
    bench.Finish();
    // With the tokens drawn before.
    EXPECT_EQ(bench.stats.prefill_tokens, 100 + 2 * (cached ? 37 : 101));
  }
}

TEST(EngineLoopBranchesTest, AnOutputThatEndsWithItsFirstTokenTakesNoBlock) {
  for (const uint32_t output : {0, 2}) {
    LoopBench bench;
    Request request = SampledRequest(100, 30);
    const int32_t ending = GenerateAlone(OnlyOutput(request, output), kContext)[0];
    request.generate()->stop.ending_ids = EndingIds({ending});
    const Readers readers = bench.SubmitOutputs(request, 4);
    bench.Step();
    EXPECT_EQ(OnlyEnd(*readers[output]).reason, FinishReason::kEos);
    int64_t begun = 0;  // of the further outputs
    for (size_t i = 1; i < 4; ++i) begun += readers[i]->collected().ends.empty();
    EXPECT_EQ(bench.model.copies(), begun);
    if (output > 0) {
      EXPECT_EQ(OnlyEnd(*readers[output]).kv_blocks_peak, 0);
    }
    bench.Finish();
  }
}

// What ends a request before or after it branches ends all its outputs alike. Its prompt takes two
// steps; the third one draws second tokens.
struct Ending {
  const char* name;
  void (*prepare)(LoopBench& bench, Request& request);
  int steps;
  void (*end)(LoopBench& bench);
  absl::StatusCode code;
  const char* reason = "";
};
class EndingTest : public ::testing::TestWithParam<Ending> {};

TEST_P(EndingTest, EndsAllOutputs) {
  const auto& [name, prepare, steps, end, code, reason] = GetParam();
  LoopBench bench(SetupWith(&EngineOptions::max_prefill_tokens, 50));
  Request request = SampledRequest(100, 50);
  if (prepare != nullptr) prepare(bench, request);
  const Readers readers = bench.SubmitOutputs(request, 3);
  for (int i = 0; i < steps; ++i) bench.Step();
  if (end != nullptr) end(bench);
  bench.StepUntilNothingCanBeDone();
  for (const Reader& reader : readers) {
    const StreamEnd got = OnlyEnd(*reader);
    EXPECT_EQ(got.status.code(), code) << got.status;
    EXPECT_EQ(ReasonOf(got.status), reason);
    const bool ended_well = code == absl::StatusCode::kOk;
    if (ended_well) {
      EXPECT_EQ(got.reason, FinishReason::kTimeLimit);
    }
    EXPECT_EQ(reader->collected().starts.size(), steps > 0 || ended_well ? 1 : 0);
    EXPECT_EQ(reader->collected().tokens.size(), steps == 3 ? 2 : 0);
    EXPECT_EQ(got.queue_time, end == nullptr || steps > 0 ? absl::ZeroDuration()
                                                          : bench.clock.Now() - absl::UnixEpoch());
  }
  bench.ExpectNothingLeft();
}

constexpr int32_t kNan = 17;
void Pass(LoopBench& bench) { bench.clock.Advance(absl::Seconds(1)); }
void Fail(LoopBench& bench) { bench.model.FailOnce(absl::UnknownError("gone")); }
void EndAll(LoopBench& bench) {
  bench.loop.EndAll(absl::UnavailableError("bye"));
  bench.Deliver();
}
void SetDeadline(LoopBench& bench, Request& request) {
  request.deadline = bench.clock.Now() + absl::Seconds(1);
}
void SetSoftDeadline(LoopBench& bench, Request& request) {
  request.soft_deadline = bench.clock.Now() + absl::Seconds(1);
}
void EndWithNan(LoopBench& bench, Request& request) {
  bench.model.set_nan_token(kNan);
  request.prompt.back() = kNan;
}
void AllowNothing(LoopBench&, Request& request) {
  request.generate()->sampling.allowed_token_ids = {3};
  request.generate()->sampling.banned_token_ids = {3};
}

INSTANTIATE_TEST_SUITE_P(
    Endings, EndingTest,
    ::testing::Values(
        Ending{"ABadRow", EndWithNan, 2, nullptr, absl::StatusCode::kDataLoss},
        Ending{"NothingMayBeDrawn", AllowNothing, 2, nullptr, absl::StatusCode::kInvalidArgument},
        Ending{"AFaultBeforeTheFirstDraw", nullptr, 1, Fail, absl::StatusCode::kInternal},
        Ending{"ADeadlineInTheQueue", SetDeadline, 0, Pass, absl::StatusCode::kDeadlineExceeded,
               "EXPIRED_IN_QUEUE"},
        Ending{"ADeadline", SetDeadline, 1, Pass, absl::StatusCode::kDeadlineExceeded,
               "EXPIRED_RUNNING"},
        Ending{"ASoftLimitInTheQueue", SetSoftDeadline, 0, Pass, absl::StatusCode::kOk},
        Ending{"ASoftLimitInThePrompt", SetSoftDeadline, 1, Pass, absl::StatusCode::kOk},
        Ending{"ASoftLimitOnceBranched", SetSoftDeadline, 3, Pass, absl::StatusCode::kOk},
        Ending{"EndAllInTheQueue", nullptr, 0, EndAll, absl::StatusCode::kUnavailable},
        Ending{"EndAllInThePrompt", nullptr, 1, EndAll, absl::StatusCode::kUnavailable},
        Ending{"EndAllOnceBranched", nullptr, 3, EndAll, absl::StatusCode::kUnavailable}),
    [](const auto& info) { return info.param.name; });

TEST(EngineLoopBranchesTest, AFailedCopyEndsItsBranchAlone) {
  LoopBench bench;
  bench.model.FailNextCopy(absl::UnknownError("the copy engine stalled"));
  const Readers readers = bench.SubmitOutputs(SampledRequest(100, 20), 3);
  bench.Step();
  EXPECT_FALSE(bench.stats.fault.ok());
  bench.Finish(/*others=*/{readers[1]});
  EXPECT_TRUE(bench.stats.fault.ok());
  EXPECT_THAT(OnlyEnd(*readers[1]).status,
              StatusIs(absl::StatusCode::kInternal, HasSubstr("stalled")));
}

TEST(EngineLoopBranchesTest, ASlowReaderStopsItsOutputOnly) {
  LoopBench bench;
  const Readers readers =
      bench.SubmitOutputs(SampledRequest(100, 20), 3, /*paused=*/true, /*capacity=*/4);
  bench.StepUntilNothingCanBeDone();
  EXPECT_EQ(bench.stats.parked_requests, 3);
  readers[1]->Resume();
  bench.StepUntilNothingCanBeDone();
  bench.ExpectAsAlone(readers[1]);
  EXPECT_EQ(bench.stats.parked_requests, 2);
  for (const size_t i : {0, 2}) {
    readers[i]->TakeNow();
    EXPECT_EQ(readers[i]->collected().tokens.size(), 4);
    readers[i]->Resume();
  }
  bench.Finish();
}

// Readers that let go: which of four, when (steps before), the others unharmed.
struct LetGo {
  std::set<size_t> readers;
  int steps = 0;
};

class LetGoTest : public ::testing::TestWithParam<LetGo> {};

TEST_P(LetGoTest, DropsThoseOutputsOnly) {
  LoopBench bench(SetupWith(&EngineOptions::max_prefill_tokens, 50));
  const Readers readers = bench.SubmitOutputs(SampledRequest(100, 20), 4);
  for (int i = 0; i < GetParam().steps; ++i) bench.Step();
  std::set<Reader> gone;
  for (const size_t i : GetParam().readers) {
    readers[i]->stream()->Detach();
    gone.insert(readers[i]);
  }
  bench.Finish(gone);
  for (const Reader& reader : gone) {
    reader->TakeNow();
    EXPECT_EQ(OnlyEnd(*reader).status.code(), absl::StatusCode::kCancelled);
  }
  const bool wanted = gone.size() < 4 || GetParam().steps >= 2;
  EXPECT_EQ(bench.stats.prefill_tokens, wanted ? 100 : 50 * GetParam().steps);
}

INSTANTIATE_TEST_SUITE_P(ReadersAndSteps, LetGoTest,
                         ::testing::Values(LetGo{{0}, 0}, LetGo{{0}, 1}, LetGo{{0}, 3},
                                           LetGo{{2}, 0}, LetGo{{2}, 1}, LetGo{{2}, 3},
                                           LetGo{{0, 1, 2}, 0}, LetGo{{0, 1, 2}, 1},
                                           LetGo{{1, 2, 3}, 1}, LetGo{{1, 2, 3}, 3},
                                           LetGo{{0, 1, 2, 3}, 0}, LetGo{{0, 1, 2, 3}, 1},
                                           LetGo{{0, 1, 2, 3}, 3}));

TEST(EngineLoopBranchesTest, ADroppedBranchGivesItsPlaceBack) {
  LoopBench bench(SetupWith(&EngineOptions::max_running_requests, 3)
                      .With(&EngineOptions::max_prefill_tokens, 50));
  const Readers readers = bench.SubmitOutputs(SampledRequest(100, 20), 3);
  const Reader other = bench.Submit(SampledRequest(10, 1, 5));
  bench.Step();
  EXPECT_EQ(bench.queue->waiting().requests, 1);
  readers[1]->stream()->Detach();
  EXPECT_EQ(readers[1]->collected().ends.size(), 0);
  bench.Step();
  EXPECT_EQ(readers[1]->collected().ends.size(), 1);  // at once, not when the others branch
  bench.Step();
  bench.ExpectAsAlone(other);
}

}  // namespace
}  // namespace tlm
