// The promise: the same request gives the same tokens and the same logits, bit for bit, whatever
// else the engine computes at the time, however it cuts the work up, whether a prefix came from the
// cache, whether it was preempted and computed anew, and whichever replica drew its first tokens.
//
// Every logits row that any schedule computes is hashed and filed under the tokens before it. Two
// hashes under one entry, or a request whose results differ from those it has alone, break the
// promise. determinism_controls_test shows that mistakes are caught.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tests/golden/schedules.h"

namespace tlm {
namespace {

struct Case {
  const char* config;
  DType dtype;  // of weights, keys and values
};

class DeterminismTest : public ::testing::TestWithParam<Case> {};

TEST_P(DeterminismTest, EveryScheduleGivesWhatEachRequestGivesAlone) {
  constexpr int kRounds = 8;
  constexpr int kSchedules = 12;  // of each round
  ScheduleRunner runner(GetParam().config, GetParam().dtype);
  std::mt19937_64 random(7);
  ScheduleCounts counts;
  int64_t compared = 0;
  for (uint64_t round = 0; round < kRounds; ++round) {
    const Outcomes alone = runner.Execute(AloneSchedule(), round, random).passes[0];
    for (int i = 0; i < kSchedules; ++i) {
      const Schedule schedule = RandomSchedule(random);
      const ScheduleRun together = runner.Execute(schedule, round, random, &alone);
      counts += together.counts;
      const Difference difference = Compare(together, alone);
      compared += difference.compared;
      ASSERT_EQ(difference.different, 0)
          << "round " << round << ", " << difference.first << ", " << schedule.Describe();
    }
  }
  EXPECT_EQ(runner.book().contradictions, 0);
  // The schedules did what they are there for.
  EXPECT_GT(counts.preemptions, 40);
  EXPECT_GT(counts.copied_blocks, 80);
  EXPECT_GT(counts.cached_tokens, 5000);
  EXPECT_GT(counts.resumed, 50);
  EXPECT_GT(compared, 1200);
  EXPECT_GT(runner.book().repeated, 4000);
}

// Rotary positions with QK-norm; windows; LayerNorm, biases, learned positions and GELU.
INSTANTIATE_TEST_SUITE_P(Models, DeterminismTest,
                         ::testing::Values(Case{"qwen3", DType::kF32}, Case{"qwen3", DType::kBF16},
                                           Case{"mistral", DType::kBF16},
                                           Case{"gpt2", DType::kF16}),
                         [](const auto& info) {
                           return fmt::format("{}_{}", info.param.config,
                                              DTypeName(info.param.dtype));
                         });

}  // namespace
}  // namespace tlm
