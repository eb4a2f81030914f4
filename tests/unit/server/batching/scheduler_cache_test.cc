#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "server/batching/scheduler.h"
#include "tests/unit/server/batching/requests.h"
#include "tests/unit/server/batching/scheduler_bench.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;

// Scheduler with a prefix cache: what is shared, and what sharing does to the counting of blocks.
class SchedulerCacheTest : public ::testing::Test {
 protected:
  static std::unique_ptr<SchedulerBench> Bench(int64_t blocks) {
    return std::make_unique<SchedulerBench>(Wide(), blocks, /*with_cache=*/true);
  }
};

TEST_F(SchedulerCacheTest, AdmissionTakesWhatIsCachedAndComputesTheRest) {
  const auto bench = Bench(20);
  Sequence* const first = bench->Add(GenerateRequest(Prompt(200), 1000));
  EXPECT_THAT(Chunks(bench->Step()), ElementsAre(Of(first, 200)));
  Sequence* const second = bench->Add(GenerateRequest(Prompt(200), 1000));
  const StepPlan plan = bench->Step();
  EXPECT_THAT(Chunks(plan), ElementsAre(Of(first, 1), Of(second, 8)));
  EXPECT_EQ(plan.chunks[1].first_position, 192);
  EXPECT_EQ(second->blocks()[2], first->blocks()[2]);
  EXPECT_NE(second->blocks()[3], first->blocks()[3]);
}

TEST_F(SchedulerCacheTest, SharedBlocksNeedNoRoom) {
  const auto bench = Bench(7);
  Sequence* const first = bench->Add(GenerateRequest(Prompt(200), 1000));  // 4 blocks
  bench->Step();
  // 3 are free: one for what is not shared, one for each of the two.
  Sequence* const second = bench->Add(GenerateRequest(Prompt(200), 1000));
  EXPECT_THAT(Chunks(bench->Step()), ElementsAre(Of(first, 1), Of(second, 8)));
  EXPECT_EQ(bench->pool.used_blocks(), 5);
}

TEST_F(SchedulerCacheTest, IdleBlocksAreRoom) {
  const auto bench = Bench(4);
  bench->Add(GenerateRequest(Prompt(200), 1));
  bench->Step();
  EXPECT_EQ(bench->pool.used_blocks(), 0);
  EXPECT_EQ(bench->pool.idle_blocks(), 3);
  Sequence* const other = bench->Add(GenerateRequest(Prompt(256, /*seed=*/1), 1));
  EXPECT_THAT(Chunks(bench->Step()), ElementsAre(Of(other, 256)));
}

TEST_F(SchedulerCacheTest, OneThatDoesNotFitGivesBackWhatItFound) {
  const auto bench = Bench(8);
  Sequence* const first = bench->Add(GenerateRequest(Prompt(200), 1000));
  bench->Step();
  std::vector<int32_t> prompt = Prompt(200);
  prompt.resize(600, 7);  // 10 blocks, 3 of them shared
  Sequence* const large = bench->Add(GenerateRequest(prompt, 1));
  EXPECT_THAT(Chunks(bench->Step()), ElementsAre(Of(first, 1)));
  EXPECT_TRUE(large->blocks().empty());
  EXPECT_EQ(large->computed(), 0);
  EXPECT_EQ(bench->pool.users(first->blocks()[0]), 1);
}

TEST_F(SchedulerCacheTest, PreemptionGoesOnUntilUnsharedBlocksAreFree) {
  const auto bench = Bench(6);
  Sequence* const senior = bench->Add(GenerateRequest(Prompt(60, /*seed=*/1), 1000));
  bench->Step();
  Request request = GenerateRequest(Prompt(192), 1000);
  request.branch_streams.push_back(UnreadStream());
  Sequence* const parent = bench->Add(std::move(request));
  bench->Step();  // the prompt's 3 blocks are those of both outputs
  Sequence* const branch = bench->TakeNewBranches().at(0);
  std::vector<BlockId> taken;
  ASSERT_TRUE(bench->pool.Allocate(2, &taken));
  while (senior->computed() < 64) bench->Step();
  EXPECT_EQ(bench->pool.available_blocks(), 0);
  EXPECT_NE(parent->state(), SequenceState::kWaiting);
  EXPECT_THAT(Chunks(bench->Step()), ElementsAre(Of(senior, 1)));
  EXPECT_EQ(branch->state(), SequenceState::kWaiting);
  EXPECT_EQ(parent->state(), SequenceState::kWaiting);
  EXPECT_EQ(senior->preemptions(), 0);
}

TEST_F(SchedulerCacheTest, ParkedSequencesThatShareBlocksGiveThemAllToOneThatWaits) {
  const auto bench = Bench(5);
  Request request = GenerateRequest(Prompt(256), 1000, UnreadStream(1));
  request.branch_streams.push_back(UnreadStream(1));
  Sequence* const parked = bench->Add(std::move(request));
  EXPECT_THAT(Chunks(bench->Step()), ElementsAre(Of(parked, 256)));
  Sequence* const branch = bench->TakeNewBranches().at(0);
  EXPECT_EQ(bench->pool.users(parked->blocks()[3]), 2);
  Sequence* const other = bench->Add(GenerateRequest(Prompt(300, /*seed=*/1), 1));
  EXPECT_THAT(Chunks(bench->Step()), ElementsAre(Of(other, 300)));
  EXPECT_EQ(parked->preemptions() + branch->preemptions(), 2);
}

TEST_F(SchedulerCacheTest, ParkedSequencesAreNotPreemptedInVain) {
  const auto bench = Bench(8);
  Sequence* const decoding = bench->Add(GenerateRequest(Prompt(200), 1000));
  bench->Step();
  // Parked, and 3 of its 4 blocks are the other's too.
  Sequence* const parked = bench->Add(GenerateRequest(Prompt(200), 1000, UnreadStream(1)));
  bench->Step();
  ASSERT_EQ(bench->pool.available_blocks(), 3);
  Sequence* const large = bench->Add(GenerateRequest(Prompt(256, /*seed=*/1), 1));
  EXPECT_THAT(Chunks(bench->Step()), ElementsAre(Of(decoding, 1)));
  EXPECT_EQ(large->state(), SequenceState::kWaiting);
  EXPECT_EQ(parked->preemptions(), 0);
}

TEST_F(SchedulerCacheTest, OneThatDidNotFitIsAdmittedOnceItSharesEnough) {
  const auto bench = Bench(12);
  Sequence* const first = bench->Add(GenerateRequest(Prompt(400), 1000));  // 7 blocks
  bench->Step(64);
  Sequence* const second = bench->Add(GenerateRequest(Prompt(400), 1000));
  EXPECT_THAT(Chunks(bench->Step(64)), ElementsAre(Of(first, 64)));
  while (first->computed() < 400) bench->Step(64);
  // Published now, though nothing got free: noticed after a while.
  for (int i = 0; i < 20 && second->state() == SequenceState::kWaiting; ++i) bench->Step();
  EXPECT_NE(second->state(), SequenceState::kWaiting);
  EXPECT_EQ(second->cached_prompt_tokens(), 384);
}

TEST_F(SchedulerCacheTest, AFailingTryIsNotRepeatedWhileNothingGetsFree) {
  const auto bench = Bench(8);
  Sequence* const first = bench->Add(GenerateRequest(Prompt(200), 1000));
  bench->Step();
  Sequence* const large = bench->Add(GenerateRequest(Prompt(500, /*seed=*/1), 1));
  for (int i = 0; i < 32; ++i) bench->Step();
  EXPECT_LE(bench->cache->stats().lookups, 1 + 3);
  bench->End(*first);
  EXPECT_THAT(Chunks(bench->Step()), ElementsAre(Of(large, 500)));
}

}  // namespace
}  // namespace tlm
