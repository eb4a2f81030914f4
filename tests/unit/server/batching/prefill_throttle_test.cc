#include "server/batching/prefill_throttle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace tlm {
namespace {

// What a step costs on a machine: base + decodes + prefill, dearer further from the prompt's start.
struct Machine {
  double base = 1e-3;
  double per_decode = 0.2e-3;
  double per_token = 0.1e-3;
  double per_token_and_context = 0.02e-6;  // doubles a token's cost after 5,000 others
  double noise = 0;                        // standard deviation, relative
  double hiccups = 0;                      // share of steps that take ten times as long
  uint32_t seed = 1;

  double Cost(int64_t decodes, int64_t tokens, int64_t context) const {
    const double n = static_cast<double>(tokens);
    const double middle = static_cast<double>(context) + n / 2;
    return base + per_decode * static_cast<double>(decodes) +
           n * (per_token + per_token_and_context * middle);
  }
};

struct Outcome {
  int64_t steps = 0;
  int64_t slow_steps = 0;  // longer than 3 times the decodes alone, by the machine's true cost
  double worst = 0;        // stretch
  double seconds = 0;
};

class Simulation {
 public:
  // The decodes alone are known, if there are any.
  explicit Simulation(const Machine& machine, double stretch = 2, int64_t decodes = 8)
      : machine_(machine), stretch_(stretch), throttle_(stretch), random_(machine.seed) {
    if (decodes > 0) DecodeAlone(decodes, 20);
  }

  void DecodeAlone(int64_t decodes, int steps) {
    for (int i = 0; i < steps; ++i) Step(decodes, 0, 0);
  }

  // `cached` tokens of the prompt need not be computed.
  Outcome Prefill(int64_t decodes, int64_t prompt, int64_t cached = 0, int64_t max_chunk = 512) {
    Outcome outcome;
    int64_t without_prefill = 0;  // steps in a row
    for (int64_t context = cached; context < prompt;) {
      const int64_t paced = throttle_.PrefillTokens(decodes);
      without_prefill = paced == 0 ? without_prefill + 1 : 0;
      EXPECT_LE(without_prefill, 1);
      const int64_t tokens = std::min({paced, prompt - context, max_chunk});
      const double seconds = Step(decodes, tokens, context);
      const double alone = machine_.Cost(decodes, 0, 0);
      ++outcome.steps;
      outcome.slow_steps += seconds > 3 * alone;
      outcome.worst = std::max(outcome.worst, seconds / alone);
      outcome.seconds += seconds;
      context += tokens;
    }
    return outcome;
  }

  // The time if every step took exactly `stretch` times as long as the decodes alone.
  double IdealSeconds(int64_t decodes, int64_t prompt) const {
    const double work = machine_.Cost(0, prompt, 0) - machine_.base;
    return work * stretch_ / (stretch_ - 1);
  }

  PrefillThrottle& throttle() { return throttle_; }

 private:
  // True cost; the throttle sees it with noise.
  double Step(int64_t decodes, int64_t tokens, int64_t context) {
    const double cost = machine_.Cost(decodes, tokens, context);
    double seen = cost * std::max(0.3, 1 + machine_.noise * normal_(random_));
    if (uniform_(random_) < machine_.hiccups) seen *= 10;
    throttle_.Record(decodes, tokens, absl::Seconds(seen));
    return cost;
  }

  const Machine machine_;
  const double stretch_;
  PrefillThrottle throttle_;
  std::mt19937 random_;
  std::normal_distribution<double> normal_;
  std::uniform_real_distribution<double> uniform_;
};

TEST(RecentSamplesTest, OneOfThreeIsOutvoted) {
  RecentSamples samples;
  EXPECT_TRUE(samples.empty());
  samples.Add(2);
  samples.Add(50);
  EXPECT_EQ(samples.Smallest(), 2);
  EXPECT_EQ(samples.Middle(), 50);
  samples.Add(3);
  EXPECT_EQ(samples.Smallest(), 2);
  EXPECT_EQ(samples.Middle(), 3);
  samples.Add(4);
  samples.Add(1);
  EXPECT_EQ(samples.Middle(), 3);  // of 3, 4, 1
  EXPECT_EQ(samples.Smallest(), 1);
  EXPECT_EQ(samples.last(), 1);
}

TEST(PrefillThrottleTest, WithoutDecodesOrWithoutABoundNothingIsHeldBack) {
  PrefillThrottle throttle(2);
  EXPECT_EQ(throttle.PrefillTokens(0), PrefillThrottle::kUnbounded);
  PrefillThrottle unbounded(0);
  unbounded.Record(8, 0, absl::Milliseconds(1));
  unbounded.Record(8, 100, absl::Seconds(10));
  EXPECT_EQ(unbounded.PrefillTokens(8), PrefillThrottle::kUnbounded);
}

TEST(PrefillThrottleTest, TriesTheUnknownWithFewTokens) {
  PrefillThrottle throttle(2);
  EXPECT_EQ(throttle.PrefillTokens(8), 0);  // not even the decodes were measured
  throttle.Record(8, 0, absl::Milliseconds(10));
  const int64_t first = throttle.PrefillTokens(8);
  EXPECT_GE(first, 8);
  EXPECT_LE(first, 32);
  throttle.Record(8, first, absl::Milliseconds(10));  // it costs next to nothing
  EXPECT_EQ(throttle.PrefillTokens(8), 2 * first);
}

TEST(PrefillThrottleTest, AStretchOfOneLeavesASingleToken) {
  PrefillThrottle throttle(1);
  throttle.Record(8, 0, absl::Milliseconds(10));
  throttle.Record(8, 16, absl::Milliseconds(20));
  EXPECT_EQ(throttle.PrefillTokens(8), 1);
}

// Each step of decodes alone is followed by so many with prefill: few until the decodes were
// measured three times.
TEST(PrefillThrottleTest, MeasuresTheDecodesAloneNowAndThen) {
  PrefillThrottle throttle(2);
  for (const int mixed : {2, 2, 64, 64}) {
    EXPECT_EQ(throttle.PrefillTokens(8), 0);
    throttle.Record(8, 0, absl::Milliseconds(10));
    for (int step = 0; step < mixed; ++step) {
      ASSERT_GT(throttle.PrefillTokens(8), 0) << step;
      throttle.Record(8, 16, absl::Milliseconds(20));
    }
  }
}

TEST(PrefillThrottleTest, KeepsTheStretchAndLosesLittleOfTheThroughput) {
  for (const double stretch : {1.5, 2.0, 3.0}) {
    Simulation simulation(Machine{}, stretch);
    const Outcome outcome = simulation.Prefill(8, 16384);
    EXPECT_LE(outcome.worst, stretch * 1.15);
    EXPECT_LE(outcome.seconds, simulation.IdealSeconds(8, 16384) * 1.25);
  }
}

TEST(PrefillThrottleTest, KeepsTheStretchOnANoisyMachine) {
  int64_t steps = 0, slow_steps = 0;
  for (uint32_t seed = 0; seed < 50; ++seed) {
    Simulation simulation({.noise = 0.1, .hiccups = 0.02, .seed = seed});
    const Outcome outcome = simulation.Prefill(8, 16384);
    steps += outcome.steps;
    slow_steps += outcome.slow_steps;
    EXPECT_LE(outcome.worst, 5);
    EXPECT_LE(outcome.seconds, simulation.IdealSeconds(8, 16384) * 1.5);
  }
  EXPECT_LE(static_cast<double>(slow_steps), 0.005 * static_cast<double>(steps));
}

TEST(PrefillThrottleTest, FollowsThePromptWhateverCameBefore) {
  Simulation simulation(Machine{});
  for (int i = 0; i < 100; ++i) simulation.Prefill(8, 100);  // cheap ones
  const Outcome dear = simulation.Prefill(8, 32768, /*cached=*/30000);
  EXPECT_LE(dear.slow_steps, 2);
  const Outcome cheap = simulation.Prefill(8, 1000);
  EXPECT_LE(cheap.seconds, simulation.IdealSeconds(8, 1000) * 2);
}

TEST(PrefillThrottleTest, LearnsFromPrefillWithoutDecodesThatTokensGotDearer) {
  Simulation simulation(Machine{});
  simulation.Prefill(8, 1000);
  simulation.Prefill(0, 30000);
  const Outcome outcome = simulation.Prefill(8, 32768, /*cached=*/30000);
  EXPECT_EQ(outcome.slow_steps, 0);
}

TEST(PrefillThrottleTest, OneSlowStepDoesNotStopPrefillAndOneFastOneDoesNotUnleashIt) {
  Simulation simulation(Machine{.per_token_and_context = 0});
  simulation.Prefill(8, 2000);
  PrefillThrottle& throttle = simulation.throttle();
  const int64_t usual = throttle.PrefillTokens(8);
  throttle.Record(8, usual, absl::Seconds(1));
  EXPECT_GE(throttle.PrefillTokens(8), usual / 2 - 1);
  simulation.Prefill(8, 2000);
  throttle.Record(8, usual, absl::Microseconds(1));
  EXPECT_LE(throttle.PrefillTokens(8), usual * 3 / 2);
  throttle.Record(8, 0, absl::Seconds(1));
  EXPECT_LE(throttle.PrefillTokens(8), usual * 3 / 2);
}

TEST(PrefillThrottleTest, KnowsOtherNumbersOfDecodesRoughly) {
  Simulation simulation(Machine{});
  simulation.Prefill(8, 4000);
  for (const int64_t decodes : {1, 4, 12, 64, 500}) {
    const Outcome outcome = simulation.Prefill(decodes, 4000);
    EXPECT_LE(outcome.worst, 3.0) << decodes;
  }
}

TEST(PrefillThrottleTest, MeasuresTheDecodesAnewBesideALongPrompt) {
  Machine slower;
  slower.base *= 4;
  slower.per_decode *= 4;
  slower.per_token_and_context = 0;
  Simulation simulation(slower, 2, /*decodes=*/0);
  // As if they had been measured when their contexts were short.
  for (int i = 0; i < 3; ++i) simulation.throttle().Record(8, 0, absl::Microseconds(2600));
  const Outcome outcome = simulation.Prefill(8, 100000);
  EXPECT_LE(outcome.seconds, simulation.IdealSeconds(8, 100000) * 1.3);
}

TEST(PrefillThrottleTest, AShortStepLastsFourTimesOneOfASingleToken) {
  const Machine machine{.per_token_and_context = 0};
  Simulation simulation(machine, 2, /*decodes=*/0);
  EXPECT_EQ(simulation.throttle().ShortStepTokens(), PrefillThrottle::kMinShortStep);
  simulation.DecodeAlone(1, 20);
  simulation.Prefill(1, 4000);
  const int64_t tokens = simulation.throttle().ShortStepTokens();
  EXPECT_NEAR(machine.Cost(0, tokens, 0) / machine.Cost(1, 0, 0), 4, 0.5);
}

TEST(PrefillThrottleTest, ShortStepsOfPromptsAloneSayNothingOfATokensCost) {
  const Machine machine{.base = 10e-3, .per_token = 0.05e-3, .per_token_and_context = 0};
  Simulation simulation(machine, 2, /*decodes=*/1);
  simulation.Prefill(0, 8192);
  const int64_t tokens = simulation.throttle().ShortStepTokens();
  simulation.Prefill(0, 512, /*cached=*/0, /*max_chunk=*/16);
  EXPECT_GE(simulation.throttle().ShortStepTokens(), tokens * 3 / 4);
}

TEST(PrefillThrottleTest, AClockThatIsSetBackIsIgnored) {
  PrefillThrottle throttle(2);
  throttle.Record(8, 0, absl::Milliseconds(10));
  throttle.Record(8, 0, -absl::Milliseconds(10));
  throttle.Record(8, 16, absl::ZeroDuration());
  EXPECT_EQ(throttle.PrefillTokens(8), 16);
}

}  // namespace
}  // namespace tlm
