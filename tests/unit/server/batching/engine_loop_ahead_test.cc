// The next step is prepared while the model computes this one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/server/batching/loop_bench.h"
#include "tests/unit/server/batching/requests.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kContext = 512;

class EngineLoopAheadTest : public ::testing::Test {
 protected:
  EngineLoopAheadTest() : bench_({.own_thread = true}) {
    bench_.model.set_on_forward([this](const Batch& batch) {
      sequences_.push_back(batch.sequences);
      tokens_.push_back(batch.tokens());
    });
  }

  // For each batch. Written by the model's thread, read between two steps.
  std::vector<int64_t> sequences_;
  std::vector<int64_t> tokens_;
  LoopBench bench_;
};

TEST_F(EngineLoopAheadTest, WhatArrivesInTimeIsPlannedBeforeTheResultsAreThere) {
  bench_.Submit(GenerateRequest(Prompt(10), 20));
  Reader arriving;
  bench_.model.set_on_launch([&] {
    if (arriving == nullptr) arriving = bench_.Submit(GenerateRequest(Prompt(30, 1), 20));
  });
  std::vector<int64_t> waiting;  // for their first step, when the results are asked for
  bench_.model.set_on_wait([&] { waiting.push_back(bench_.queue->waiting().requests); });
  bench_.Step();
  EXPECT_THAT(waiting, ElementsAre(0));
  EXPECT_TRUE(arriving->collected().starts.empty());
  bench_.Step();
  EXPECT_THAT(tokens_, ElementsAre(10, 1 + 30));
  EXPECT_EQ(arriving->collected().starts.size(), 1);
  bench_.Finish();
}

TEST_F(EngineLoopAheadTest, WhatArrivesAfterThePlanJoinsTheNextStep) {
  bench_.Submit(GenerateRequest(Prompt(10), 20));
  Reader arriving;
  bench_.model.set_on_wait([&] {
    if (arriving == nullptr) arriving = bench_.Submit(GenerateRequest(Prompt(30, 1), 20));
  });
  bench_.Step();
  EXPECT_EQ(bench_.queue->waiting().requests, 1);
  bench_.Step();
  EXPECT_THAT(tokens_, ElementsAre(10, 1 + 30));
  EXPECT_EQ(arriving->collected().tokens.size(), 1);
  bench_.Finish();
}

TEST_F(EngineLoopAheadTest, TheNextTokenIsPlannedBeforeThisOneIsDrawn) {
  const Reader reader = bench_.Submit(GenerateRequest(Prompt(64), 20));
  for (size_t tokens = 1; tokens <= 20; ++tokens) {
    bench_.Step();
    EXPECT_EQ(reader->collected().tokens.size(), tokens);
    if (tokens == 1) {
      EXPECT_EQ(bench_.stats.kv_blocks_used, 2);
    }
  }
  bench_.Finish();
}

TEST_F(EngineLoopAheadTest, AnOutputIsNotPlannedAfterItsKnownEnd) {
  const Reader reader = bench_.Submit(GenerateRequest(Prompt(63), 2));
  bench_.Step();
  EXPECT_EQ(bench_.stats.kv_blocks_used, 1);
  bench_.Finish();
  // The second token ends it: no block is taken for a third one.
  EXPECT_THAT(tokens_, ElementsAre(63, 1));
  EXPECT_EQ(OnlyEnd(*reader).steps, 2);
  EXPECT_EQ(OnlyEnd(*reader).kv_blocks_peak, 1);
}

TEST_F(EngineLoopAheadTest, WhatEndsUnexpectedlyIsDroppedFromThePlan) {
  Request request = GenerateRequest(Prompt(10), 20);
  const std::vector<int32_t> alone = GenerateAlone(request, kContext);
  request.generate()->stop.ending_ids = EndingIds({alone[4]});
  const size_t tokens = GenerateAlone(request, kContext).size();
  const Reader ending = bench_.Submit(request);
  bench_.Submit(GenerateRequest(Prompt(20, 1), 20));
  bench_.Finish();
  EXPECT_EQ(OnlyEnd(*ending).reason, FinishReason::kEos);
  EXPECT_EQ(OnlyEnd(*ending).steps, static_cast<int64_t>(tokens));
  for (size_t step = 0; step < sequences_.size(); ++step) {
    EXPECT_EQ(sequences_[step], step < tokens ? 2 : 1);
  }
}

TEST_F(EngineLoopAheadTest, AFaultFailsThePlannedStepOfItsRequestsToo) {
  const Reader failing = bench_.Submit(GenerateRequest(Prompt(100), 20));
  bench_.Step();
  Reader arriving;
  bench_.model.set_on_wait([&] {
    if (arriving == nullptr) arriving = bench_.Submit(GenerateRequest(Prompt(30, 1), 20));
  });
  bench_.model.FailOnce(absl::UnknownError("gone"));
  bench_.Step();
  EXPECT_EQ(OnlyEnd(*failing).status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(failing->collected().tokens.size(), 1);
  EXPECT_EQ(bench_.stats.kv_blocks_used, 0);
  bench_.Finish(/*others=*/{failing});
  EXPECT_EQ(bench_.stats.consecutive_faults, 0);
}

}  // namespace
}  // namespace tlm
