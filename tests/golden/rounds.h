// Sets of requests, each alone and then under many schedules: nothing may differ.
#ifndef TLM_TESTS_GOLDEN_ROUNDS_H_
#define TLM_TESTS_GOLDEN_ROUNDS_H_

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <random>
#include <string>

#include "tests/golden/schedules.h"

namespace tlm {

// Outputs that were not cancelled, and those of them that are not what they are alone.
struct Difference {
  int64_t compared = 0;
  int64_t different = 0;
  std::string first;
};

inline Difference Compare(const ScheduleRun& together, const Outcomes& alone) {
  Difference result;
  for (size_t pass = 0; pass < together.passes.size(); ++pass) {
    const Outcomes& outcomes = together.passes[pass];
    for (size_t i = 0; i < alone.size(); ++i) {
      for (size_t output = 0; output < alone[i].size(); ++output) {
        if (!outcomes[i][output].has_value()) continue;
        ++result.compared;
        const Collected expected = Verified(*alone[i][output], together.claims[pass][i]);
        if (Outcome(*outcomes[i][output]) == Outcome(expected)) continue;
        if (result.different++ == 0) result.first = fmt::format("request {}.{}", i, output);
      }
    }
  }
  return result;
}

struct Rounds {
  uint64_t rounds = 1;  // each with requests of its own
  int schedules = 12;   // of each round
  uint64_t seed = 7;
  // Changes the random schedule `index` of a round, or what the runner needs for it; kAlone stands
  // for the schedule that has each request alone. Nothing by default.
  static constexpr int kAlone = -1;
  std::function<void(uint64_t round, int index, Schedule& schedule)> prepare = {};
};

struct RoundsRun {
  ScheduleCounts counts;
  int64_t compared = 0;  // outputs
};

// Fails the test where a schedule gives another result than each request alone, or the same tokens
// other logits.
inline RoundsRun RunRounds(ScheduleRunner& runner, const Rounds& rounds) {
  std::mt19937_64 random(rounds.seed);
  RoundsRun run;
  for (uint64_t round = 0; round < rounds.rounds; ++round) {
    Schedule each_alone = AloneSchedule();
    if (rounds.prepare) rounds.prepare(round, Rounds::kAlone, each_alone);
    const Outcomes alone = runner.Execute(each_alone, round, random).passes[0];
    for (int i = 0; i < rounds.schedules; ++i) {
      Schedule schedule = RandomSchedule(random);
      if (rounds.prepare) rounds.prepare(round, i, schedule);
      const ScheduleRun together = runner.Execute(schedule, round, random, &alone);
      run.counts += together.counts;
      const Difference difference = Compare(together, alone);
      run.compared += difference.compared;
      EXPECT_EQ(difference.different, 0) << "round " << round << ", schedule " << i << ", "
                                         << difference.first << ", " << schedule.Describe();
      if (difference.different > 0) return run;
    }
  }
  EXPECT_EQ(runner.book().contradictions, 0);
  return run;
}

}  // namespace tlm

#endif  // TLM_TESTS_GOLDEN_ROUNDS_H_
