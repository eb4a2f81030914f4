// The next step is prepared while the model computes this one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/unit/server/batching/loop_bench.h"
#include "tests/unit/server/batching/requests.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kContext = 512;

class EngineLoopAheadTest : public ::testing::Test {
 protected:
  explicit EngineLoopAheadTest(LoopSetup setup = {}) : bench_(OnOwnThread(setup)) {
    bench_.model.set_on_forward([this](const Batch& batch) {
      sequences_.push_back(batch.sequences);
      tokens_.push_back(batch.tokens());
    });
  }
  static LoopSetup OnOwnThread(LoopSetup setup) {
    setup.own_thread = true;
    return setup;
  }
  static void ExpectAsAlone(const CollectingReader& reader, const Request& request) {
    EXPECT_TRUE(OnlyEnd(reader).status.ok()) << OnlyEnd(reader).status;
    EXPECT_EQ(reader.collected().token_ids(), GenerateAlone(request, kContext));
  }

  // Of each batch. Written by the model's thread, read between two steps.
  std::vector<int64_t> sequences_;
  std::vector<int64_t> tokens_;
  LoopBench bench_;
};

TEST_F(EngineLoopAheadTest, WhatArrivesInTimeIsPlannedBeforeTheResultsAreThere) {
  const Request first = GenerateRequest(Prompt(10), 20);
  const Request second = GenerateRequest(Prompt(30, 1), 20);
  const auto running = bench_.Submit(first);
  std::shared_ptr<CollectingReader> arriving;
  bench_.model.set_on_launch([&] {
    if (arriving == nullptr) arriving = bench_.Submit(second);
  });
  std::vector<int64_t> waiting;  // for their first step, when the results are asked for
  bench_.model.set_on_wait([&] { waiting.push_back(bench_.queue->waiting().requests); });
  bench_.Step();
  EXPECT_THAT(waiting, ElementsAre(0));
  EXPECT_TRUE(arriving->collected().starts.empty());
  bench_.Step();
  EXPECT_THAT(tokens_, ElementsAre(10, 1 + 30));
  EXPECT_EQ(arriving->collected().starts.size(), 1);
  bench_.StepUntilNothingCanBeDone();
  ExpectAsAlone(*running, first);
  ExpectAsAlone(*arriving, second);
}

TEST_F(EngineLoopAheadTest, WhatArrivesAfterThePlanJoinsTheNextStep) {
  const Request first = GenerateRequest(Prompt(10), 20);
  const Request second = GenerateRequest(Prompt(30, 1), 20);
  const auto running = bench_.Submit(first);
  std::shared_ptr<CollectingReader> arriving;
  bench_.model.set_on_wait([&] {
    if (arriving == nullptr) arriving = bench_.Submit(second);
  });
  bench_.Step();
  EXPECT_EQ(bench_.queue->waiting().requests, 1);
  bench_.Step();
  EXPECT_THAT(tokens_, ElementsAre(10, 1 + 30));
  EXPECT_EQ(arriving->collected().tokens.size(), 1);
  bench_.StepUntilNothingCanBeDone();
  ExpectAsAlone(*running, first);
  ExpectAsAlone(*arriving, second);
}

TEST_F(EngineLoopAheadTest, TheNextTokenIsPlannedBeforeThisOneIsDrawn) {
  const Request request = GenerateRequest(Prompt(64), 20);
  const auto reader = bench_.Submit(request);
  bench_.Step();
  EXPECT_EQ(reader->collected().tokens.size(), 1);
  EXPECT_EQ(bench_.stats.kv_blocks_used, 2);
  bench_.StepUntilNothingCanBeDone();
  ExpectAsAlone(*reader, request);
}

TEST_F(EngineLoopAheadTest, ResultsAreThereWhenTheirStepEnds) {
  const auto reader = bench_.Submit(GenerateRequest(Prompt(10), 20));
  for (size_t tokens = 1; tokens <= 20; ++tokens) {
    bench_.Step();
    EXPECT_EQ(reader->collected().tokens.size(), tokens);
  }
  EXPECT_EQ(reader->collected().ends.size(), 1);
}

TEST_F(EngineLoopAheadTest, AnOutputIsNotPlannedBehindItsKnownEnd) {
  const auto reader = bench_.Submit(GenerateRequest(Prompt(63), 2));
  bench_.Step();
  EXPECT_EQ(bench_.stats.kv_blocks_used, 1);
  // The second token ends it: no block is taken for a third one.
  int64_t steps = 1;
  while (bench_.Step()) ++steps;
  EXPECT_EQ(steps, 2);
  EXPECT_THAT(tokens_, ElementsAre(63, 1));
  EXPECT_EQ(OnlyEnd(*reader).steps, 2);
  EXPECT_EQ(OnlyEnd(*reader).kv_blocks_peak, 1);
}

TEST_F(EngineLoopAheadTest, WhatEndsUnexpectedlyIsDroppedFromThePlan) {
  Request request = GenerateRequest(Prompt(10), 20);
  const std::vector<int32_t> alone = GenerateAlone(request, kContext);
  request.generate()->stop.ending_ids = EndingIds({alone[4]});
  const int64_t tokens = static_cast<int64_t>(GenerateAlone(request, kContext).size());
  const Request other = GenerateRequest(Prompt(20, 1), 20);
  const auto ending = bench_.Submit(request);
  const auto going_on = bench_.Submit(other);
  bench_.StepUntilNothingCanBeDone();
  ExpectAsAlone(*ending, request);
  EXPECT_EQ(OnlyEnd(*ending).reason, FinishReason::kEos);
  EXPECT_EQ(OnlyEnd(*ending).steps, tokens);
  ExpectAsAlone(*going_on, other);
  for (size_t step = 0; step < sequences_.size(); ++step) {
    EXPECT_EQ(sequences_[step], step < static_cast<size_t>(tokens) ? 2 : 1);
  }
}

TEST_F(EngineLoopAheadTest, WhatWasLetGoIsDroppedFromThePlan) {
  const Request request = GenerateRequest(Prompt(20, 1), 20);
  const auto leaving = bench_.Submit(GenerateRequest(Prompt(10), 20));
  const auto staying = bench_.Submit(request);
  bench_.Step();
  leaving->stream()->Detach();
  bench_.StepUntilNothingCanBeDone();
  EXPECT_EQ(OnlyEnd(*leaving).status.code(), absl::StatusCode::kCancelled);
  ExpectAsAlone(*staying, request);
  EXPECT_EQ(sequences_[0], 2);
  EXPECT_EQ(sequences_[1], 1);
}

TEST_F(EngineLoopAheadTest, AnOutputThatEndsWithItsFirstTokenMakesRoomInTheNextStep) {
  const Request request = GenerateRequest(Prompt(10), 1);
  const auto first = bench_.Submit(request);
  bench_.Step();
  EXPECT_EQ(first->collected().ends.size(), 1);
  EXPECT_EQ(bench_.stats.kv_blocks_used, 0);
  EXPECT_FALSE(bench_.Step());
}

TEST_F(EngineLoopAheadTest, AFaultFailsThePlannedStepOfItsRequestsToo) {
  const Request request = GenerateRequest(Prompt(30, 1), 20);
  const auto failing = bench_.Submit(GenerateRequest(Prompt(100), 20));
  bench_.Step();
  std::shared_ptr<CollectingReader> arriving;
  bench_.model.set_on_wait([&] {
    if (arriving == nullptr) arriving = bench_.Submit(request);
  });
  bench_.model.FailOnce(absl::UnknownError("gone"));
  bench_.Step();
  EXPECT_EQ(OnlyEnd(*failing).status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(failing->collected().tokens.size(), 1);
  EXPECT_EQ(bench_.stats.kv_blocks_used, 0);
  bench_.StepUntilNothingCanBeDone();
  ExpectAsAlone(*arriving, request);
  EXPECT_EQ(bench_.stats.consecutive_faults, 0);
}

class FewBlocksAheadTest : public EngineLoopAheadTest {
 protected:
  FewBlocksAheadTest() : EngineLoopAheadTest({.blocks = 5, .max_context = 256}) {}
};

// The plan for the next step preempts while the victim's row is on its way.
TEST_F(FewBlocksAheadTest, APreemptedSequenceKeepsTheTokenOnItsWay) {
  std::vector<std::shared_ptr<CollectingReader>> readers;
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 4; ++i) {
    requests.push_back(GenerateRequest(Prompt(40 + 9 * i, i), 150));
    requests.back().generate()->sampling.temperature = 1.0f;
    requests.back().generate()->sampling.frequency_penalty = 0.5f;
    readers.push_back(bench_.Submit(requests.back()));
  }
  int64_t preempted_in_flight = 0;
  while (true) {
    std::vector<size_t> before;
    for (const auto& reader : readers) before.push_back(reader->collected().tokens.size());
    const int64_t preemptions = bench_.stats.preemptions;
    const int64_t running = bench_.stats.running_requests;
    if (!bench_.Step()) break;
    int64_t sampled = 0;
    for (size_t i = 0; i < readers.size(); ++i) {
      sampled += readers[i]->collected().tokens.size() > before[i];
    }
    if (bench_.stats.preemptions > preemptions && sampled > bench_.stats.running_requests &&
        running > bench_.stats.running_requests) {
      ++preempted_in_flight;
    }
  }
  EXPECT_GT(preempted_in_flight, 0);
  for (size_t i = 0; i < readers.size(); ++i) {
    EXPECT_EQ(readers[i]->collected().token_ids(), GenerateAlone(requests[i], 256));
  }
  EXPECT_EQ(bench_.stats.kv_blocks_used, 0);
}

// The plan for the next step preempts a parent while its first row is on its way: its branches find
// no blocks to share. Of prompts that are computed token by token, one is done just then.
TEST(EngineLoopAheadBranchesTest, AParentPreemptedInFlightStillBranches) {
  int64_t preempted_in_flight = 0;
  for (int64_t prompt = 129; prompt < 140; ++prompt) {
    LoopSetup setup{.blocks = 6, .max_context = 256};
    setup.options.max_prefill_tokens = 1;
    LoopBench bench(setup);
    const Request senior = GenerateRequest(Prompt(60), 190);
    Request request = GenerateRequest(Prompt(prompt, 3), 30);
    request.generate()->sampling.temperature = 1.0f;
    const auto first = bench.Submit(senior);
    while (first->collected().tokens.empty()) bench.Step();
    const auto readers = bench.SubmitOutputs(request, 2);
    int64_t preemptions_before = 0;
    while (readers[0]->collected().tokens.empty()) {
      preemptions_before = bench.stats.preemptions;
      ASSERT_TRUE(bench.Step());
    }
    if (preemptions_before == 0 && bench.stats.preemptions > 0) {
      ++preempted_in_flight;
      EXPECT_EQ(readers[1]->collected().tokens.size(), 1);
      EXPECT_EQ(bench.stats.running_requests, 1);
    }
    bench.StepUntilNothingCanBeDone();
    EXPECT_EQ(first->collected().token_ids(), GenerateAlone(senior, 256));
    for (uint32_t i = 0; i < readers.size(); ++i) {
      EXPECT_EQ(readers[i]->collected().token_ids(), GenerateAlone(OnlyOutput(request, i), 256));
    }
    EXPECT_EQ(bench.stats.kv_blocks_used, 0);
  }
  EXPECT_EQ(preempted_in_flight, 1);
}

}  // namespace
}  // namespace tlm
