// Requests for several outputs: one prompt, computed once, and a stream for each output.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "model/base/errors.h"
#include "tests/unit/server/batching/loop_bench.h"
#include "tests/unit/server/batching/requests.h"

namespace tlm {
namespace {

using ::testing::HasSubstr;
using Collected = CollectingReader::Collected;
using Readers = std::vector<std::shared_ptr<CollectingReader>>;

constexpr int64_t kContext = 512;

Request SampledRequest(int64_t prompt, int64_t max_new_tokens, uint32_t seed = 0) {
  Request request = GenerateRequest(Prompt(prompt, seed), max_new_tokens);
  request.generate()->sampling.temperature = 1.0f;
  request.generate()->sampling.seed = 11 + seed;
  return request;
}

void ExpectAsAlone(const CollectingReader& reader, const Request& request, uint32_t output) {
  EXPECT_EQ(reader.collected().starts.size(), 1);
  EXPECT_TRUE(OnlyEnd(reader).status.ok()) << OnlyEnd(reader).status;
  EXPECT_EQ(reader.collected().token_ids(), GenerateAlone(OnlyOutput(request, output), kContext));
}

void ExpectAllAsAlone(const Readers& readers, const Request& request) {
  for (size_t i = 0; i < readers.size(); ++i) {
    ExpectAsAlone(*readers[i], request, static_cast<uint32_t>(i));
  }
}

void ExpectAllEnd(const Readers& readers, absl::StatusCode code) {
  for (const auto& reader : readers) {
    EXPECT_EQ(OnlyEnd(*reader).status.code(), code) << OnlyEnd(*reader).status;
  }
}

void ExpectNothingLeft(const LoopBench& bench, int64_t requests) {
  EXPECT_EQ(bench.ended, requests);
  EXPECT_EQ(bench.stats.finished_requests, requests);
  EXPECT_EQ(bench.stats.kv_blocks_used, 0);
  EXPECT_EQ(bench.stats.running_requests, 0);
  EXPECT_EQ(bench.stats.waiting_requests, 0);
  EXPECT_EQ(bench.queue->waiting().requests, 0);
  EXPECT_EQ(bench.queue->waiting().prompt_tokens, 0);
}

class PromptLengthTest : public ::testing::TestWithParam<int64_t> {};

TEST_P(PromptLengthTest, EveryOutputIsWhatItIsAloneAndThePromptIsComputedOnce) {
  LoopBench bench;
  const Request request = SampledRequest(GetParam(), 80);
  const Readers readers = bench.SubmitOutputs(request, 5);
  bench.StepUntilNothingCanBeDone();
  ExpectAllAsAlone(readers, request);
  ExpectNothingLeft(bench, 1);
  EXPECT_EQ(bench.stats.prefill_tokens, GetParam());
  EXPECT_EQ(bench.stats.decode_tokens, 5 * 79);
  EXPECT_EQ(bench.model.copies(), GetParam() % 64 == 0 ? 0 : 4);
  std::set<std::vector<int32_t>> different;
  for (const auto& reader : readers) different.insert(reader->collected().token_ids());
  EXPECT_EQ(different.size(), 5);
}

INSTANTIATE_TEST_SUITE_P(Lengths, PromptLengthTest,
                         ::testing::Values(1, 63, 64, 65, 100, 128, 200));

TEST(EngineLoopBranchesTest, FullBlocksAreShared) {
  LoopBench bench;
  bench.SubmitOutputs(SampledRequest(200, 5), 4);
  bench.Step();
  EXPECT_EQ(bench.stats.running_requests, 4);
  EXPECT_EQ(bench.stats.kv_blocks_used, 3 + 4);
}

TEST(EngineLoopBranchesTest, EachOutputTellsWhatItUsedItself) {
  LoopBench bench;
  bench.model.set_on_forward([&](const Batch&) { bench.clock.Advance(absl::Seconds(1)); });
  const Readers readers = bench.SubmitOutputs(SampledRequest(200, 5), 3);
  bench.clock.Advance(absl::Seconds(10));
  bench.StepUntilNothingCanBeDone();
  EXPECT_EQ(OnlyEnd(*readers[0]).computed_prompt_tokens, 200);
  EXPECT_EQ(OnlyEnd(*readers[0]).kv_blocks_peak, 4);
  EXPECT_EQ(OnlyEnd(*readers[0]).steps, 5);
  for (const auto& reader : {readers[1], readers[2]}) {
    EXPECT_EQ(OnlyEnd(*reader).computed_prompt_tokens, 0);
    EXPECT_EQ(OnlyEnd(*reader).kv_blocks_peak, 1);
    EXPECT_EQ(OnlyEnd(*reader).steps, 4);
  }
  for (const auto& reader : readers) {
    EXPECT_EQ(OnlyEnd(*reader).queue_time, absl::Seconds(10));
    EXPECT_EQ(OnlyEnd(*reader).prefill_time, absl::Seconds(1));
    EXPECT_EQ(OnlyEnd(*reader).decode_time, absl::Seconds(4));
  }
}

TEST(EngineLoopBranchesTest, CountsAsOneRequestInTheQueueAndUntilItsLastOutputEnds) {
  LoopBench bench(SetupWith(&EngineOptions::max_running_requests, 4));
  Request request = SampledRequest(10, 40);
  const std::vector<int32_t> second = GenerateAlone(OnlyOutput(request, 1), kContext);
  request.generate()->stop.ending_ids = EndingIds({}, {second[5]});
  const Readers readers = bench.SubmitOutputs(request, 3);
  const Readers waiting = bench.SubmitOutputs(SampledRequest(20, 2), 3);
  bench.Step();
  EXPECT_EQ(bench.queue->waiting().requests, 1);
  EXPECT_EQ(bench.queue->waiting().prompt_tokens, 20);
  EXPECT_EQ(bench.stats.waiting_requests, 0);
  const auto ended = [](const Readers& all) {
    return std::all_of(all.begin(), all.end(), [](const std::shared_ptr<CollectingReader>& reader) {
      return !reader->collected().ends.empty();
    });
  };
  while (!ended(readers)) {
    EXPECT_EQ(bench.stats.finished_requests, ended(waiting) ? 1 : 0);
    ASSERT_TRUE(bench.Step());
  }
  bench.StepUntilNothingCanBeDone();
  ExpectAllAsAlone(readers, request);
  ExpectNothingLeft(bench, 2);
}

TEST(EngineLoopBranchesTest, PlacesAreKeptForBranchesToCome) {
  LoopSetup setup;
  setup.options.max_running_requests = 4;
  setup.options.max_prefill_tokens = 30;
  LoopBench bench(setup);
  int64_t most = 0;
  bench.model.set_on_forward([&](const Batch& batch) { most = std::max(most, batch.sequences); });
  const Request request = SampledRequest(100, 30);
  const Readers readers = bench.SubmitOutputs(request, 3);
  bench.Step();
  Readers others;
  for (uint32_t i = 0; i < 6; ++i) others.push_back(bench.Submit(SampledRequest(10, 30, i)));
  bench.StepUntilNothingCanBeDone();
  ExpectAllAsAlone(readers, request);
  for (uint32_t i = 0; i < 6; ++i) ExpectAsAlone(*others[i], SampledRequest(10, 30, i), 0);
  EXPECT_EQ(most, 4);
  EXPECT_EQ(bench.stats.prefill_tokens, 160);  // every prompt once
  EXPECT_EQ(bench.stats.preemptions, 0);
}

TEST(EngineLoopBranchesTest, WithoutAPlaceForItABranchWaitsAndComputesThePromptItself) {
  for (const bool cached : {false, true}) {
    LoopSetup setup;
    setup.max_logits_rows = 2;
    setup.options.prefix_cache = cached;
    LoopBench bench(setup);
    const Request request = SampledRequest(100, 30);
    const Readers readers = bench.SubmitOutputs(request, 4);
    bench.Step();
    EXPECT_EQ(bench.stats.running_requests, 2);
    EXPECT_EQ(bench.stats.waiting_requests, 2);
    bench.StepUntilNothingCanBeDone();
    ExpectAllAsAlone(readers, request);
    ExpectNothingLeft(bench, 1);
    // With the tokens drawn before.
    EXPECT_EQ(bench.stats.prefill_tokens, 100 + 2 * (cached ? 37 : 101));
  }
}

TEST(EngineLoopBranchesTest, WithoutABlockForItABranchWaitsAndComputesThePromptItself) {
  LoopBench bench({.blocks = 2, .max_context = 128});
  const Request request = SampledRequest(70, 30);
  const Readers readers = bench.SubmitOutputs(request, 3);
  bench.Step();
  EXPECT_EQ(bench.stats.running_requests, 1);
  bench.StepUntilNothingCanBeDone();
  ExpectAllAsAlone(readers, request);
  ExpectNothingLeft(bench, 1);
  EXPECT_EQ(OnlyEnd(*readers[2]).kv_blocks_peak, 2);
}

TEST(EngineLoopBranchesTest, APreemptedBranchComputesEverythingItself) {
  LoopBench bench({.blocks = 5, .max_context = 256});
  const Request request = SampledRequest(70, 180);
  const Readers readers = bench.SubmitOutputs(request, 3);
  bench.StepUntilNothingCanBeDone();
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(readers[i]->collected().token_ids(), GenerateAlone(OnlyOutput(request, i), 256));
  }
  EXPECT_GT(bench.stats.preemptions, 0);
  EXPECT_EQ(OnlyEnd(*readers[0]).preemptions, 0);  // the eldest
  ExpectNothingLeft(bench, 1);
}

TEST(EngineLoopBranchesTest, AParentPreemptedBeforeItBranchesBranchesLater) {
  LoopSetup setup;
  setup.blocks = 6;
  setup.max_context = 256;
  setup.options.max_prefill_tokens = 1;
  LoopBench bench(setup);
  const auto senior = bench.Submit(SampledRequest(60, 190));
  while (senior->collected().tokens.empty()) bench.Step();
  const Request request = SampledRequest(190, 20, 3);
  const Readers readers = bench.SubmitOutputs(request, 2);
  // It is 190 steps from its first draw; within 133 the other one needs a block of it.
  while (bench.stats.preemptions == 0) ASSERT_TRUE(bench.Step());
  EXPECT_TRUE(readers[0]->collected().tokens.empty());
  EXPECT_EQ(bench.stats.waiting_requests, 1);
  bench.StepUntilNothingCanBeDone();
  ExpectAllAsAlone(readers, request);
  ExpectNothingLeft(bench, 2);
}

TEST(EngineLoopBranchesTest, AnOutputThatEndsWithItsFirstTokenTakesNoBlock) {
  LoopBench bench;
  Request request = SampledRequest(100, 30);
  const int32_t ending = GenerateAlone(OnlyOutput(request, 2), kContext)[0];
  request.generate()->stop.ending_ids = EndingIds({ending});
  const Readers readers = bench.SubmitOutputs(request, 4);
  bench.Step();
  int64_t ended = 0;
  for (size_t i = 1; i < readers.size(); ++i) ended += !readers[i]->collected().ends.empty();
  EXPECT_GE(ended, 1);
  EXPECT_EQ(bench.model.copies(), 3 - ended);
  bench.StepUntilNothingCanBeDone();
  ExpectAllAsAlone(readers, request);
  EXPECT_EQ(OnlyEnd(*readers[2]).reason, FinishReason::kEos);
  EXPECT_EQ(OnlyEnd(*readers[2]).kv_blocks_peak, 0);
  ExpectNothingLeft(bench, 1);
}

TEST(EngineLoopBranchesTest, OneTokenEachEndsAllInOneStep) {
  LoopBench bench;
  const Request request = SampledRequest(100, 1);
  const Readers readers = bench.SubmitOutputs(request, 4);
  bench.Step();
  ExpectAllAsAlone(readers, request);
  EXPECT_EQ(bench.model.copies(), 0);
  ExpectNothingLeft(bench, 1);
}

TEST(EngineLoopBranchesTest, TheFirstOutputMayEndBeforeTheOthers) {
  LoopBench bench;
  Request request = SampledRequest(100, 30);
  request.generate()->stop.ending_ids = EndingIds({GenerateAlone(request, kContext)[0]});
  const Readers readers = bench.SubmitOutputs(request, 3);
  bench.Step();
  EXPECT_EQ(readers[0]->collected().ends.size(), 1);
  bench.StepUntilNothingCanBeDone();
  ExpectAllAsAlone(readers, request);
  ExpectNothingLeft(bench, 1);
}

TEST(EngineLoopBranchesTest, PenaltiesCountEachOutputsOwnTokens) {
  for (const int64_t blocks : {64, 5}) {
    LoopBench bench({.blocks = blocks, .max_context = 256});
    Request request = SampledRequest(70, 100);
    request.generate()->sampling.repetition_penalty = 1.3f;
    request.generate()->sampling.frequency_penalty = 0.4f;
    request.generate()->sampling.presence_penalty = 0.2f;
    const Readers readers = bench.SubmitOutputs(request, 3);
    bench.StepUntilNothingCanBeDone();
    ExpectAllAsAlone(readers, request);
    EXPECT_EQ(bench.stats.preemptions > 0, blocks == 5);
    Request without = request;
    without.generate()->sampling = SampledRequest(70, 100).generate()->sampling;
    EXPECT_NE(readers[0]->collected().token_ids(), GenerateAlone(without, 256));
  }
}

TEST(EngineLoopBranchesTest, PromptScoresGoToTheFirstOutput) {
  LoopSetup setup;
  setup.options.max_prefill_tokens = 37;
  setup.max_logits_rows = 10;
  LoopBench bench(setup);
  Request request = SampledRequest(100, 5);
  request.generate()->score_prompt = true;
  request.generate()->score.top = 2;
  const Readers readers = bench.SubmitOutputs(request, 3);
  bench.StepUntilNothingCanBeDone();
  ExpectAllAsAlone(readers, request);
  EXPECT_EQ(readers[0]->collected().scored.size(), 99);
  EXPECT_TRUE(readers[1]->collected().scored.empty());
}

// What ends a request before it branches ends all its outputs alike.

TEST(EngineLoopBranchesTest, ABadRowEndsAllOutputs) {
  LoopBench bench;
  bench.model.set_nan_token(17);
  Request request = SampledRequest(100, 5);
  request.prompt.back() = 17;
  const Readers readers = bench.SubmitOutputs(request, 3);
  const auto other = bench.Submit(GenerateRequest({1, 2, 3}, 1));
  bench.StepUntilNothingCanBeDone();
  ExpectAllEnd(readers, absl::StatusCode::kDataLoss);
  EXPECT_TRUE(OnlyEnd(*other).status.ok());
  EXPECT_TRUE(bench.stats.fault.ok());
  ExpectNothingLeft(bench, 2);
}

TEST(EngineLoopBranchesTest, NothingThatMayBeDrawnEndsAllOutputs) {
  LoopBench bench;
  Request request = SampledRequest(100, 5);
  request.generate()->sampling.allowed_token_ids = {3};
  request.generate()->sampling.banned_token_ids = {3};
  const Readers readers = bench.SubmitOutputs(request, 3);
  bench.StepUntilNothingCanBeDone();
  ExpectAllEnd(readers, absl::StatusCode::kInvalidArgument);
  ExpectNothingLeft(bench, 1);
}

TEST(EngineLoopBranchesTest, AFaultBeforeTheFirstDrawEndsAllOutputs) {
  LoopBench bench(SetupWith(&EngineOptions::max_prefill_tokens, 50));
  const Readers readers = bench.SubmitOutputs(SampledRequest(100, 5), 3);
  bench.Step();
  bench.model.FailOnce(absl::UnknownError("gone"));
  bench.Step();
  ExpectAllEnd(readers, absl::StatusCode::kInternal);
  for (const auto& reader : readers) EXPECT_EQ(reader->collected().starts.size(), 1);
  ExpectNothingLeft(bench, 1);
}

TEST(EngineLoopBranchesTest, ADeadlineEndsAllOutputs) {
  for (const bool started : {false, true}) {
    LoopBench bench(SetupWith(&EngineOptions::max_prefill_tokens, 50));
    Request request = SampledRequest(100, 5);
    request.deadline = bench.clock.Now() + absl::Seconds(1);
    const Readers readers = bench.SubmitOutputs(request, 3);
    if (started) bench.Step();
    bench.clock.Advance(absl::Seconds(1));
    bench.Step();
    ExpectAllEnd(readers, absl::StatusCode::kDeadlineExceeded);
    for (const auto& reader : readers) {
      EXPECT_EQ(ReasonOf(OnlyEnd(*reader).status),
                started ? "EXPIRED_RUNNING" : "EXPIRED_IN_QUEUE");
      EXPECT_EQ(reader->collected().starts.size(), started ? 1 : 0);
      EXPECT_EQ(OnlyEnd(*reader).queue_time, absl::Seconds(started ? 0 : 1));
    }
    ExpectNothingLeft(bench, 1);
  }
}

TEST(EngineLoopBranchesTest, ASoftLimitEndsAllOutputsWell) {
  for (const int steps : {0, 1, 3}) {
    LoopBench bench(SetupWith(&EngineOptions::max_prefill_tokens, 50));
    Request request = SampledRequest(100, 50);
    request.soft_deadline = bench.clock.Now() + absl::Seconds(1);
    const Readers readers = bench.SubmitOutputs(request, 3);
    for (int i = 0; i < steps; ++i) bench.Step();
    bench.clock.Advance(absl::Seconds(1));
    bench.Step();
    for (const auto& reader : readers) {
      EXPECT_TRUE(OnlyEnd(*reader).status.ok());
      EXPECT_EQ(OnlyEnd(*reader).reason, FinishReason::kTimeLimit);
      EXPECT_EQ(reader->collected().starts.size(), 1);
      EXPECT_EQ(reader->collected().tokens.size(), steps == 3 ? 2 : 0);
    }
    ExpectNothingLeft(bench, 1);
  }
}

TEST(EngineLoopBranchesTest, EndAllEndsAllOutputsBeforeAndAfterTheyBranch) {
  for (const int steps : {0, 1, 3}) {
    LoopBench bench(SetupWith(&EngineOptions::max_prefill_tokens, 50));
    const Readers readers = bench.SubmitOutputs(SampledRequest(100, 50), 3);
    for (int i = 0; i < steps; ++i) bench.Step();
    bench.loop.EndAll(absl::UnavailableError("bye"));
    bench.Deliver();
    ExpectAllEnd(readers, absl::StatusCode::kUnavailable);
    ExpectNothingLeft(bench, 1);
  }
}

TEST(EngineLoopBranchesTest, AFailedCopyEndsItsBranchAlone) {
  LoopBench bench;
  const Request request = SampledRequest(100, 20);
  bench.model.FailNextCopy(absl::UnknownError("the copy engine stalled"));
  const Readers readers = bench.SubmitOutputs(request, 3);
  bench.Step();
  EXPECT_FALSE(bench.stats.fault.ok());
  bench.StepUntilNothingCanBeDone();
  EXPECT_TRUE(bench.stats.fault.ok());
  EXPECT_EQ(OnlyEnd(*readers[1]).status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(OnlyEnd(*readers[1]).status.message()), HasSubstr("stalled"));
  ExpectAsAlone(*readers[0], request, 0);
  ExpectAsAlone(*readers[2], request, 2);
  ExpectNothingLeft(bench, 1);
}

TEST(EngineLoopBranchesTest, ASlowReaderStopsItsOutputOnly) {
  LoopBench bench;
  const Request request = SampledRequest(100, 20);
  const Readers readers = bench.SubmitOutputs(request, 3, /*paused=*/true, /*capacity=*/4);
  bench.StepUntilNothingCanBeDone();
  EXPECT_EQ(bench.stats.parked_requests, 3);
  readers[1]->Resume();
  while (bench.Step()) {
  }
  ExpectAsAlone(*readers[1], request, 1);
  EXPECT_EQ(bench.stats.parked_requests, 2);
  for (const size_t i : {0, 2}) {
    readers[i]->TakeNow();
    EXPECT_EQ(readers[i]->collected().tokens.size(), 4);
    readers[i]->Resume();
  }
  bench.StepUntilNothingCanBeDone();
  ExpectAllAsAlone(readers, request);
  ExpectNothingLeft(bench, 1);
}

// Readers that let go: which of four, when (steps before), the others unharmed.
struct LetGo {
  std::set<size_t> readers;
  int steps = 0;
};

class LetGoTest : public ::testing::TestWithParam<LetGo> {};

TEST_P(LetGoTest, DropsThoseOutputsOnly) {
  LoopBench bench(SetupWith(&EngineOptions::max_prefill_tokens, 50));
  const Request request = SampledRequest(100, 20);
  const Readers readers = bench.SubmitOutputs(request, 4);
  for (int i = 0; i < GetParam().steps; ++i) bench.Step();
  for (const size_t i : GetParam().readers) readers[i]->stream()->Detach();
  bench.StepUntilNothingCanBeDone();
  for (size_t i = 0; i < readers.size(); ++i) {
    readers[i]->TakeNow();
    if (GetParam().readers.contains(i)) {
      EXPECT_EQ(OnlyEnd(*readers[i]).status.code(), absl::StatusCode::kCancelled);
    } else {
      ExpectAsAlone(*readers[i], request, static_cast<uint32_t>(i));
    }
  }
  ExpectNothingLeft(bench, 1);
  const bool wanted = GetParam().readers.size() < 4 || GetParam().steps >= 2;
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
  LoopSetup setup;
  setup.options.max_running_requests = 3;
  setup.options.max_prefill_tokens = 50;
  LoopBench bench(setup);
  const Readers readers = bench.SubmitOutputs(SampledRequest(100, 20), 3);
  const auto other = bench.Submit(SampledRequest(10, 1, 5));
  bench.Step();
  EXPECT_EQ(bench.queue->waiting().requests, 1);
  readers[1]->stream()->Detach();
  EXPECT_EQ(readers[1]->collected().ends.size(), 0);
  bench.Step();
  EXPECT_EQ(readers[1]->collected().ends.size(), 1);  // at once, not when the others branch
  bench.Step();
  ExpectAsAlone(*other, SampledRequest(10, 1, 5), 0);
}

}  // namespace
}  // namespace tlm
