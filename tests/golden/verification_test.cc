// Checks claims: requests that state their output. A correct output is never refuted, and a wrong
// token is found, with the token that is sampled there, regardless of what else the engine
// computes.
#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "tests/golden/schedules.h"

namespace tlm {
namespace {

// Runs by instruction set, because sums may differ: claims come from the same one.
class VerificationTest : public ::testing::TestWithParam<Isa> {};

TEST_P(VerificationTest, ClaimsAreConfirmedAndChangedTokensFound) {
  constexpr uint64_t kRounds = 3;
  constexpr int kSchedules = 6;  // schedules of each round
  ScheduleRunner runner(
      {.config = SmallConfig("qwen3"), .dtype = DType::kBF16, .requests = 24, .max_outputs = 1});
  runner.set_machine(
      {.backend = [](const Schedule& schedule) -> absl::StatusOr<std::unique_ptr<Ops>> {
         return CpuOps::Create(schedule.threads, GetParam());
       },
       .ops = {},
       .model = {}});
  std::mt19937_64 random(19);
  ScheduleCounts counts;
  for (uint64_t round = 0; round < kRounds; ++round) {
    const Outcomes alone = runner.Execute(AloneSchedule(), round, random).passes[0];
    for (int i = 0; i < kSchedules; ++i) {
      Schedule schedule = RandomSchedule(random);
      schedule.claim_one_in = 1 + i % 2;
      schedule.passes = 10;
      const ScheduleRun together = runner.Execute(schedule, round, random, &alone);
      counts += together.counts;
      const Difference difference = Compare(together, alone);
      ASSERT_EQ(difference.different, 0)
          << "round " << round << ", " << difference.first << ", " << schedule.Describe();
    }
  }
  EXPECT_EQ(runner.book().contradictions, 0);
  EXPECT_GT(counts.confirmed, 500);
  EXPECT_GT(counts.refuted, 500);
  EXPECT_GT(counts.preemptions, 500);
  EXPECT_GT(counts.cached_tokens, 10000);
  EXPECT_GT(counts.resumed, 100);
  EXPECT_GT(counts.drafted, 500);
}

INSTANTIATE_TEST_SUITE_P(Isas, VerificationTest, ::testing::ValuesIn(AvailableIsas()),
                         [](const auto& info) { return std::string(IsaName(info.param)); });

}  // namespace
}  // namespace tlm
