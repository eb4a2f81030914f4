#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include "server/batching/scheduler.h"
#include "tests/unit/server/batching/requests.h"
#include "tests/unit/server/batching/scheduler_bench.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Request Of(const std::string& tenant, Request request) {
  request.tenant = tenant;
  return request;
}

SchedulerLimits Narrow() { return WideBut(&SchedulerLimits::max_prefill_tokens, 64); }

// Prefill tokens of each tenant's chunks.
void CountPrefill(const StepPlan& plan, std::map<std::string, int64_t>* tokens) {
  for (const Chunk& chunk : plan.chunks) {
    if (!chunk.decode) (*tokens)[chunk.sequence->request().tenant] += chunk.num_tokens;
  }
}

TEST(SchedulerTenantsTest, TenantsThatAlwaysWantMoreGetTheSameWhateverTheirSizes) {
  SchedulerBench bench(Narrow());
  std::map<std::string, int64_t> tokens;
  for (int i = 0; i < 3000; ++i) bench.Add(Of("small", GenerateRequest(Prompt(7), 1)));
  for (int i = 0; i < 60; ++i) bench.Add(Of("large", GenerateRequest(Prompt(500), 1)));
  for (int step = 0; step < 300; ++step) {
    CountPrefill(bench.Step(), &tokens);
    EXPECT_LE(std::abs(tokens["small"] - tokens["large"]), 2 * 64);
  }
  EXPECT_EQ(tokens["small"] + tokens["large"], 300 * 64);
}

TEST(SchedulerTenantsTest, DecodesCountToo) {
  SchedulerBench bench(Narrow());
  for (int i = 0; i < 10; ++i) bench.Add(Of("decodes", GenerateRequest(Prompt(6), 1000)));
  bench.Step();
  for (int i = 0; i < 100; ++i) bench.Step();
  // Both want prefill now; the one that decodes pays for it with every step.
  std::map<std::string, int64_t> tokens;
  for (int i = 0; i < 5; ++i) {
    bench.Add(Of("decodes", GenerateRequest(Prompt(1000), 1)));
    bench.Add(Of("prefills", GenerateRequest(Prompt(1000), 1)));
  }
  for (int i = 0; i < 60; ++i) CountPrefill(bench.Step(), &tokens);
  const int64_t decoded = 60 * 10 * TenantCounters::kDecodeWeight;
  EXPECT_NEAR(static_cast<double>(tokens["prefills"]),
              static_cast<double>(tokens["decodes"] + decoded), 2 * 64);
}

TEST(SchedulerTenantsTest, AParkedSequenceKeepsNoTenantInTheRace) {
  SchedulerBench bench(Narrow());
  // Its counter stays small for ever; newcomers must not begin there.
  bench.Add(Of("parked", ForwardRequest(Prompt(60), AllPositions(60), UnreadStream(1))));
  bench.Step();
  for (int i = 0; i < 200; ++i) bench.Add(Of("busy", GenerateRequest(Prompt(64), 1)));
  for (int i = 0; i < 100; ++i) bench.Step();
  for (int i = 0; i < 50; ++i) bench.Add(Of("new", GenerateRequest(Prompt(64), 1)));
  std::map<std::string, int64_t> tokens;
  for (int i = 0; i < 20; ++i) CountPrefill(bench.Step(), &tokens);
  EXPECT_NEAR(static_cast<double>(tokens["new"]), static_cast<double>(tokens["busy"]), 64);
}

TEST(SchedulerTenantsTest, PriorityComesBeforeFairness) {
  SchedulerBench bench(Narrow());
  for (int i = 0; i < 10; ++i) {
    bench.Add(Of("urgent", WithPriority(1, GenerateRequest(Prompt(64), 1))));
    bench.Add(Of("fair", GenerateRequest(Prompt(64), 1)));
  }
  std::map<std::string, int64_t> tokens;
  for (int i = 0; i < 10; ++i) CountPrefill(bench.Step(), &tokens);
  EXPECT_EQ(tokens["urgent"], 640);
  EXPECT_EQ(tokens["fair"], 0);
}

TEST(SchedulerTenantsTest, WithinATenantTheEarliestDeadlineGoesFirst) {
  SchedulerBench bench(Narrow());
  const auto add = [&](const std::string& tenant, int64_t seconds) {
    Request request = GenerateRequest(Prompt(64), 1);
    request.deadline = absl::UnixEpoch() + absl::Seconds(seconds);
    return bench.Add(Of(tenant, std::move(request)));
  };
  Sequence* const a_late = add("a", 9);
  Sequence* const a_early = add("a", 5);
  Sequence* const b_late = add("b", 7);
  Sequence* const b_early = add("b", 6);
  for (Sequence* const expected : {a_early, b_early, b_late, a_late}) {
    EXPECT_THAT(bench.Step().admitted, ElementsAre(expected));
  }
}

// The head-of-line blocker: a request that does not fit beside what runs.
class SchedulerDoorTest : public ::testing::Test {
 protected:
  SchedulerBench bench_{Wide(), /*blocks=*/10};
  // 2 blocks, and none for longer than the test.
  Sequence* const running_ = bench_.Add(Of("first", GenerateRequest(Prompt(65), 60)));
};

TEST_F(SchedulerDoorTest, SmallOnesOfOthersDoNotStarveOneThatDoesNotFit) {
  bench_.Step();
  Sequence* const huge = bench_.Add(Of("huge", GenerateRequest(Prompt(600), 1)));  // all 10
  int64_t others = 0;
  for (int i = 0; huge->generated_tokens() == 0; ++i) {
    ASSERT_LT(i, 100);
    // Of tenants that have had nothing, and in a hurry.
    Request request = GenerateRequest(Prompt(5), 30);
    request.deadline = absl::UnixEpoch();
    bench_.Add(Of("tenant " + std::to_string(i), std::move(request)));
    for (const Sequence* admitted : bench_.Step().admitted) others += admitted != huge;
  }
  EXPECT_LE(others, 1);
}

TEST_F(SchedulerDoorTest, HigherPriorityAndTheTenantsOwnUrgencyStillGoFirst) {
  bench_.Step();
  bench_.Add(Of("huge", GenerateRequest(Prompt(600), 1)));
  EXPECT_THAT(bench_.Step().admitted, IsEmpty());
  Request urgent = Of("huge", GenerateRequest(Prompt(5), 1));
  urgent.deadline = absl::UnixEpoch();
  Sequence* const own = bench_.Add(std::move(urgent));
  Sequence* const higher = bench_.Add(WithPriority(1, Of("other", GenerateRequest(Prompt(5), 1))));
  bench_.Add(Of("other", GenerateRequest(Prompt(5), 1)));
  EXPECT_THAT(bench_.Step().admitted, ElementsAre(higher, own));
  EXPECT_THAT(bench_.Step().admitted, IsEmpty());
}

TEST_F(SchedulerDoorTest, TheDoorIsOpenAgainWhenItsHolderIsRemoved) {
  bench_.Step();
  Sequence* const huge = bench_.Add(Of("huge", GenerateRequest(Prompt(600), 1)));
  bench_.Step();
  Sequence* const other = bench_.Add(Of("other", GenerateRequest(Prompt(5), 1)));
  EXPECT_THAT(bench_.Step().admitted, IsEmpty());
  bench_.End(*huge);
  EXPECT_THAT(bench_.Step().admitted, ElementsAre(other));
}

TEST_F(SchedulerDoorTest, PrefillsGoOnBehindAClosedDoor) {
  bench_.Step();
  Sequence* const slow = bench_.Add(Of("slow", GenerateRequest(Prompt(100), 1)));
  EXPECT_THAT(Chunks(bench_.Step(64)), ElementsAre(std::pair(running_, 1), std::pair(slow, 64)));
  bench_.Add(Of("huge", GenerateRequest(Prompt(600), 1)));
  EXPECT_THAT(Chunks(bench_.Step(64)), ElementsAre(std::pair(running_, 1), std::pair(slow, 36)));
}

// Places and blocks that run out.
class SchedulerSharesTest : public ::testing::Test {
 protected:
  Sequence* AddOutputs(const std::string& tenant, int64_t outputs, int64_t tokens) {
    Request request = Of(tenant, GenerateRequest(Prompt(5), tokens));
    for (int64_t i = 1; i < outputs; ++i) request.branch_streams.push_back(UnreadStream());
    return bench_.Add(std::move(request));
  }
  // Sequences of each tenant in the next step.
  std::map<std::string, int64_t> StepByTenant(SchedulerBench& bench) {
    std::map<std::string, int64_t> sequences;
    for (const Chunk& chunk : bench.Step().chunks) ++sequences[chunk.sequence->request().tenant];
    return sequences;
  }

  static SchedulerLimits Limits() { return WideBut(&SchedulerLimits::short_prompt_tokens, 256); }
  SchedulerBench bench_{Limits(), /*blocks=*/4000, /*with_cache=*/true};
};

// By "many", of which one request more waits.
class AllPlacesTakenTest : public SchedulerSharesTest {
 protected:
  void SetUp() override {
    for (int i = 0; i < 5; ++i) AddOutputs("many", 16, 2000);
    for (int i = 0; i < 10; ++i) bench_.Step();
    ASSERT_EQ(bench_.scheduler.running(), 64);
  }
};

TEST_F(AllPlacesTakenTest, OneThatComesWhileAStepComputesIsInTheNext) {
  const StepPlan running = bench_.scheduler.Plan();
  bench_.Launch(running);
  StepPlan ahead = bench_.scheduler.Plan();
  Sequence* const other = AddOutputs("other", 1, 5);
  bench_.TakeResults(running);
  bench_.scheduler.TopUp(ahead);
  EXPECT_THAT(Chunks(ahead), ElementsAre(std::pair(other, 5)));
  bench_.CarryOut(ahead);
  EXPECT_EQ(other->generated_tokens(), 1);
  EXPECT_EQ(bench_.Step().decodes, 64);
}

TEST_F(AllPlacesTakenTest, LargerOnesSitOutNoTwoStepsInARow) {
  for (int i = 0; i < 50; ++i) {
    AddOutputs("other " + std::to_string(i), 1, 5);
    EXPECT_EQ(StepByTenant(bench_)["many"] == 0, i % 2 == 0);
  }
}

TEST_F(SchedulerSharesTest, APromptThatFillsTheStepMakesRoomForAShortOne) {
  Sequence* const large = bench_.Add(Of("many", GenerateRequest(Prompt(5000), 1)));
  bench_.Step();
  StepPlan ahead = bench_.scheduler.Plan();
  EXPECT_THAT(Chunks(ahead), ElementsAre(std::pair(large, 512)));
  Sequence* const other = AddOutputs("other", 1, 5);
  bench_.scheduler.TopUp(ahead);
  EXPECT_THAT(Chunks(ahead), ElementsAre(std::pair(other, 5)));
}

TEST_F(SchedulerSharesTest, StepsOfPromptsStayShortForThoseThatComeNext) {
  const auto step = [&] { return bench_.Step(1 << 20, /*short_step_tokens=*/40).prefill_tokens; };
  bench_.Add(Of("many", GenerateRequest(Prompt(100000), 1)));
  EXPECT_EQ(step(), 512);
  AddOutputs("other", 1, 1);
  step();
  for (int i = 0; i < 64; ++i) EXPECT_EQ(step(), 40);
  EXPECT_EQ(step(), 512);
}

TEST_F(SchedulerSharesTest, AShortStepHasAllOfThePromptItIsShortFor) {
  bench_.Add(Of("many", GenerateRequest(Prompt(100000), 1)));
  bench_.Step();
  Sequence* const other = bench_.Add(Of("other", GenerateRequest(Prompt(200), 1)));
  EXPECT_THAT(Chunks(bench_.Step(1 << 20, /*short_step_tokens=*/40)),
              ElementsAre(std::pair(other, 200)));
}

TEST_F(SchedulerSharesTest, AShortPromptComesBeforeLongOnesOfTenantsWithAsManyPlaces) {
  for (int i = 0; i < 3; ++i) {
    bench_.Add(Of("many " + std::to_string(i), GenerateRequest(Prompt(10000), 1)));
  }
  bench_.Step();
  bench_.Add(Of("one more", GenerateRequest(Prompt(10000), 1)));
  Sequence* const other = AddOutputs("other", 1, 5);
  EXPECT_THAT(Chunks(bench_.Step()), ElementsAre(std::pair(other, 5)));
}

TEST_F(SchedulerSharesTest, AShortStepHasNoMoreOfALongPromptThatMakesRoomForItself) {
  bench_.Add(Of("many", GenerateRequest(Prompt(100000), 1)));
  bench_.Step();
  AddOutputs("other", 1, 1);
  bench_.Step();
  Sequence* const third = bench_.Add(Of("third", GenerateRequest(Prompt(1000), 1)));
  EXPECT_THAT(Chunks(bench_.Step(1 << 20, /*short_step_tokens=*/40)),
              ElementsAre(std::pair(third, 40)));
}

TEST_F(AllPlacesTakenTest, OutputsOfOneRequestGetTheirPlacesTogether) {
  AddOutputs("other", 16, 50);
  bench_.Step();
  EXPECT_EQ(StepByTenant(bench_)["other"], 16);
  EXPECT_EQ(StepByTenant(bench_)["many"], 48);
}

TEST_F(AllPlacesTakenTest, TenantsThatWantMoreThanThereIsHoldTheSameAndPreemptionStops) {
  for (int i = 0; i < 50; ++i) {
    AddOutputs("one", 1, 1000);
    AddOutputs("two", 1, 1000);
  }
  for (int i = 0; i < 10; ++i) bench_.Step();
  const std::map<std::string, int64_t> held = StepByTenant(bench_);
  for (const auto& [tenant, sequences] : held) EXPECT_NEAR(sequences, 64 / 3, 1) << tenant;
  EXPECT_EQ(held.at("many") + held.at("one") + held.at("two"), 64);
  const int64_t preemptions = bench_.scheduler.preemptions();
  for (int i = 0; i < 500; ++i) bench_.Step();
  EXPECT_EQ(bench_.scheduler.preemptions(), preemptions);
}

TEST_F(AllPlacesTakenTest, OneThatSendsARequestAfterTheOtherPreemptsOnce) {
  for (int i = 0; i < 50; ++i) {
    Sequence* const other = AddOutputs("other", 1, 5);
    bench_.Step();
    EXPECT_EQ(other->generated_tokens(), 1);
    for (int step = 0; step < 9; ++step) bench_.Step();
  }
  EXPECT_EQ(bench_.scheduler.preemptions(), 1);
}

TEST_F(AllPlacesTakenTest, WhatOneHadIsTheOthersAgainWhenItIsGone) {
  AddOutputs("other", 16, 5);
  for (int i = 0; i < 100; ++i) bench_.Step();
  EXPECT_EQ(StepByTenant(bench_)["many"], 64);
}

TEST_F(AllPlacesTakenTest, OneTenantAloneIsNeverPreempted) {
  for (int i = 0; i < 100; ++i) {
    AddOutputs("many", 1, 5);
    bench_.Step();
  }
  EXPECT_EQ(bench_.scheduler.preemptions(), 0);
}

TEST_F(SchedulerSharesTest, AHigherPriorityDoesNotYield) {
  for (int i = 0; i < 64; ++i) {
    bench_.Add(WithPriority(1, Of("urgent", GenerateRequest(Prompt(5), 1000))));
  }
  bench_.Step();
  Sequence* const other = AddOutputs("other", 1, 5);
  for (int i = 0; i < 50; ++i) bench_.Step();
  EXPECT_EQ(other->state(), SequenceState::kWaiting);
  EXPECT_EQ(bench_.scheduler.preemptions(), 0);
}

TEST_F(SchedulerSharesTest, BlocksAreSharedToo) {
  for (const bool with_cache : {false, true}) {
    SchedulerBench bench(Wide(), /*blocks=*/44, with_cache);
    for (uint32_t i = 0; i < 8; ++i) {
      bench.Add(Of("many", GenerateRequest(Prompt(600, i), 1000)));
    }
    for (int i = 0; i < 40; ++i) bench.Step();
    ASSERT_LT(bench.pool.available_blocks(), 10);
    Sequence* const other = bench.Add(Of("other", GenerateRequest(Prompt(300, 99), 200)));
    for (int i = 0; i < 3; ++i) bench.Step();
    EXPECT_GT(other->generated_tokens(), 0);
    // What the larger one's decodes need is taken from itself.
    while (other->state() != SequenceState::kFinished) {
      ASSERT_EQ(StepByTenant(bench)["other"], 1);
    }
    EXPECT_EQ(other->preemptions(), 0);
  }
}

// It needs nearly all blocks; small ones of others come without end.
TEST_F(SchedulerSharesTest, ALargeOneGetsOnThoughItYields) {
  for (const bool with_cache : {false, true}) {
    SchedulerBench bench(Wide(), /*blocks=*/12, with_cache);
    Sequence* const large = bench.Add(Of("large", GenerateRequest(Prompt(500), 200)));
    for (uint32_t i = 0; large->state() != SequenceState::kFinished; ++i) {
      ASSERT_LT(i, 1000);
      bench.Add(Of("small", GenerateRequest(Prompt(100, i), 5)));
      for (int step = 0; step < 7; ++step) bench.Step();
    }
    EXPECT_LE(large->preemptions(), 4);
  }
}

}  // namespace
}  // namespace tlm
