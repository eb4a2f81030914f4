// Claims: a request that says what its output is. An output that is its own is never doubted, and a
// token that is not is found, with the one that is drawn there, whatever else the engine computes.
#include <gtest/gtest.h>

#include <memory>

#include "tests/golden/rounds.h"

namespace tlm {
namespace {

// By instruction set, whose sums may differ: what is claimed is what the same one gave.
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
