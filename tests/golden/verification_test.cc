// Checks claims: requests that state their output. A correct output is never refuted, and a wrong
// token is found, with the token that is sampled there, regardless of what else the engine
// computes.
#include <gtest/gtest.h>

#include <memory>

#include "tests/golden/rounds.h"

namespace tlm {
namespace {

// Runs by instruction set, because sums may differ: claims come from the same one.
class VerificationTest : public ::testing::TestWithParam<Isa> {};

TEST_P(VerificationTest, ClaimsAreConfirmedAndChangedTokensFound) {
  ScheduleRunner runner(
      {.config = SmallConfig("qwen3"), .dtype = DType::kBF16, .requests = 24, .max_outputs = 1});
  runner.set_machine(
      {.backend = [](const Schedule& schedule) -> absl::StatusOr<std::unique_ptr<Ops>> {
         return CpuOps::Create(schedule.threads, GetParam());
       },
       .ops = {},
       .model = {}});
  const auto prepare = [](uint64_t, int index, Schedule& schedule) {
    if (index == Rounds::kAlone) return;
    schedule.claim_one_in = 1 + index % 2;
    schedule.passes = 10;
  };
  const ScheduleCounts counts =
      RunRounds(runner, {.rounds = 3, .schedules = 6, .seed = 19, .prepare = prepare}).counts;
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
