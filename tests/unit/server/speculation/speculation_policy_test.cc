#include "server/speculation/speculation_policy.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <numeric>
#include <random>

namespace tlm {
namespace {

// Milliseconds of a step of so many tokens.
using Cost = std::function<double(int64_t)>;

double Flat(int64_t) { return 20; }
double Linear(int64_t tokens) { return 20 * static_cast<double>(tokens); }
// Memory-bound to 32 tokens.
double FlatTo32(int64_t tokens) { return tokens <= 32 ? 20 : static_cast<double>(tokens); }
// A token in 16 makes a step as much longer as one alone.
double Shared(int64_t tokens) { return 18.75 + 1.25 * static_cast<double>(tokens); }
// Another kernel from two tokens on, that is flat in turn.
double Jump(int64_t tokens) { return tokens == 1 ? 20 : 36 + 0.2 * static_cast<double>(tokens); }

// As if all of [1, 300] tokens had been measured lately.
StepCosts Known(const Cost& cost) {
  StepCosts costs;
  for (int i = 0; i < 3; ++i) {
    for (const int64_t tokens : {1,  2,  3,  4,  6,  8,  12, 15, 16, 17, 18,  20,
                                 22, 24, 28, 31, 32, 34, 40, 48, 64, 96, 128, 256}) {
      costs.Record(tokens, absl::Milliseconds(cost(tokens)));
    }
  }
  return costs;
}

// Candidates of `length` tokens with the same chance.
class Candidates {
 public:
  void Add(double chance, size_t length = 16, bool by_model = false) {
    chances_.emplace_back(length, chance);
    models_.push_back(by_model);
  }
  Candidates& With(size_t count, double chance, size_t length = 16) {
    for (size_t i = 0; i < count; ++i) Add(chance, length);
    return *this;
  }
  std::vector<int64_t> Choose(const StepCosts& costs, absl::Duration round = absl::ZeroDuration(),
                              int64_t max_tokens = 1'000'000, int64_t others = 0) const {
    std::vector<DraftCandidate> candidates;
    for (size_t i = 0; i < chances_.size(); ++i) candidates.push_back({chances_[i], models_[i]});
    return ChooseDraftLengths(candidates, std::ssize(candidates) + others, costs, round,
                              max_tokens);
  }

 private:
  std::vector<std::vector<double>> chances_;
  std::vector<bool> models_;
};

int64_t Sum(const std::vector<int64_t>& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
}

double Estimate(const StepCosts& costs, int64_t tokens) {
  return absl::ToDoubleMilliseconds(costs.Estimate(tokens));
}

TEST(StepCostsTest, KnowsNothingBeforeAMeasurement) {
  StepCosts costs;
  EXPECT_EQ(costs.Estimate(1), absl::ZeroDuration());
  EXPECT_FALSE(costs.IsFresh(1));
  costs.Record(1, absl::ZeroDuration());
  EXPECT_EQ(costs.Estimate(7), absl::ZeroDuration());
}

TEST(StepCostsTest, EstimatesWhatWasMeasuredAndInterpolates) {
  const StepCosts costs = Known(Shared);
  for (const int64_t tokens : {1, 2, 7, 10, 16, 25, 32}) {
    EXPECT_NEAR(Estimate(costs, tokens), Shared(tokens), 0.04 * Shared(tokens)) << tokens;
  }
}

TEST(StepCostsTest, NeverFallsWithTheTokensWhateverWasMeasured) {
  std::mt19937 random(1);
  StepCosts costs;
  for (int i = 0; i < 3000; ++i) {
    const int64_t tokens = 1 + static_cast<int64_t>(random() % (i % 7 == 0 ? 400 : 40));
    costs.Record(tokens, absl::Microseconds(1 + random() % 5000));
    if (i % 50 != 0) continue;
    for (int64_t n = 1; n < 500; ++n) ASSERT_LE(costs.Estimate(n), costs.Estimate(n + 1)) << n;
  }
}

TEST(StepCostsTest, WhatWasNeverTriedLooksCheapOnlyUpToTwiceTheTokens) {
  StepCosts costs;
  for (int i = 0; i < 3; ++i) costs.Record(4, absl::Milliseconds(20));
  EXPECT_NEAR(Estimate(costs, 5), 21.25, 1e-6);
  EXPECT_NEAR(Estimate(costs, 8), 25, 1e-6);
  EXPECT_NEAR(Estimate(costs, 32), 100, 1e-6);
  EXPECT_NEAR(Estimate(costs, 2), 16, 1e-6);
}

TEST(StepCostsTest, ASingleLongStepIsIgnored) {
  StepCosts costs;
  for (int i = 0; i < 20; ++i) costs.Record(4, absl::Milliseconds(20));
  costs.Record(4, absl::Seconds(5));
  EXPECT_NEAR(Estimate(costs, 4), 20, 0.01);
  // Also the first of its size, as soon as there is another.
  costs.Record(6, absl::Seconds(1));
  costs.Record(6, absl::Milliseconds(22));
  EXPECT_NEAR(Estimate(costs, 6), 22, 1);
}

TEST(StepCostsTest, FollowsADriftWithinAFewSteps) {
  StepCosts costs;
  for (int i = 0; i < 100; ++i) costs.Record(4, absl::Milliseconds(20));
  for (int i = 0; i < 24; ++i) costs.Record(4, absl::Milliseconds(40));
  EXPECT_NEAR(Estimate(costs, 4), 40, 2);
}

TEST(StepCostsTest, WhatIsMeasuredNowPrevailsOverWhatWasLongAgo) {
  StepCosts costs;
  for (int i = 0; i < 10; ++i) costs.Record(4, absl::Milliseconds(50));
  EXPECT_NEAR(Estimate(costs, 4), 50, 1);
  for (int i = 0; i < 700; ++i) costs.Record(8, absl::Milliseconds(20));
  EXPECT_NEAR(Estimate(costs, 8), 20, 1);
}

TEST(StepCostsTest, AnOldCostGoesBackToAGuessThatInvitesATry) {
  StepCosts costs;
  for (int i = 0; i < 10; ++i) costs.Record(2, absl::Milliseconds(100));
  costs.Record(1, absl::Milliseconds(20));
  EXPECT_GT(Estimate(costs, 2), 90);
  for (int i = 0; i < 900; ++i) costs.Record(1, absl::Milliseconds(20));
  EXPECT_NEAR(Estimate(costs, 2), 25, 1e-6);
}

TEST(StepCostsTest, IsFreshForAsManyTokensOrLittleMore) {
  StepCosts costs;
  costs.Record(16, absl::Milliseconds(1));
  EXPECT_TRUE(costs.IsFresh(16));
  EXPECT_TRUE(costs.IsFresh(20));
  EXPECT_FALSE(costs.IsFresh(21));
  EXPECT_FALSE(costs.IsFresh(15));
  costs.Record(33, absl::Milliseconds(1));
  EXPECT_TRUE(costs.IsFresh(33));
}

TEST(StepCostsTest, IsFreshForLongerWhenMeasuredAfterAPause) {
  StepCosts costs;
  const auto fresh_steps = [&] {
    costs.Record(1, absl::Milliseconds(1));
    int64_t steps = 1;
    for (; costs.IsFresh(1); ++steps) costs.Record(8, absl::Milliseconds(1));
    return steps;
  };
  EXPECT_EQ(fresh_steps(), StepCosts::kMinFreshSteps + 1);
  EXPECT_EQ(fresh_steps(), 2 * (StepCosts::kMinFreshSteps + 1) + 1);
  for (int i = 0; i < 5; ++i) fresh_steps();
  EXPECT_EQ(fresh_steps(), StepCosts::kFreshSteps + 1);
  costs.Record(1, absl::Milliseconds(1));
  EXPECT_EQ(fresh_steps(), StepCosts::kMinFreshSteps + 1);
}

TEST(StepCostsTest, ADriftOfOneSizeChangesWhatWasMeasuredOfAnother) {
  StepCosts costs;
  for (int i = 0; i < 4; ++i) costs.Record(8, absl::Milliseconds(60));
  for (int i = 0; i < 4; ++i) costs.Record(4, absl::Milliseconds(20));
  for (int i = 0; i < 40; ++i) costs.Record(4, absl::Milliseconds(20 + i));
  EXPECT_GT(Estimate(costs, 8), 140);
}

TEST(ChooseDraftLengthsTest, GuessesNothingWhileCostsAreNotKnown) {
  EXPECT_EQ(Sum(Candidates().With(3, 0.99).Choose(StepCosts())), 0);
  StepCosts costs;
  costs.Record(3, absl::Milliseconds(20));
  EXPECT_GT(Sum(Candidates().With(3, 0.99).Choose(costs)), 0);
}

TEST(ChooseDraftLengthsTest, GuessesEverythingThatIsLikelyWhereTokensAreFree) {
  const StepCosts costs = Known(Flat);
  EXPECT_EQ(Candidates().With(1, 0.9).Choose(costs), (std::vector<int64_t>{16}));
  EXPECT_EQ(Candidates().With(4, 0.9).Choose(costs), (std::vector<int64_t>{16, 16, 16, 16}));
  // 0.3^3 is the last one above kMinReach.
  EXPECT_EQ(Candidates().With(1, 0.3).Choose(costs), (std::vector<int64_t>{3}));
  EXPECT_EQ(Candidates().With(1, 1.0).Choose(costs), (std::vector<int64_t>{16}));
}

TEST(ChooseDraftLengthsTest, SharesTheFreeTokensOfABatchByChance) {
  const StepCosts costs = Known(FlatTo32);
  Candidates candidates;
  candidates.With(2, 0.95).With(14, 0.25);
  const std::vector<int64_t> lengths = candidates.Choose(costs);
  // 16 sequences and 16 draft tokens.
  EXPECT_EQ(Sum(lengths), 16);
  EXPECT_EQ(lengths[0], 8);
  EXPECT_EQ(lengths[1], 8);
  EXPECT_EQ(Sum(Candidates().With(16, 0.6).Choose(costs)), 16);
  EXPECT_EQ(Candidates().With(16, 0.6).Choose(costs), std::vector<int64_t>(16, 1));
}

TEST(ChooseDraftLengthsTest, KeepsToTheMostTokens) {
  const StepCosts costs = Known(Flat);
  EXPECT_EQ(Sum(Candidates().With(4, 0.9).Choose(costs, absl::ZeroDuration(), 5)), 5);
  EXPECT_EQ(Sum(Candidates().With(4, 0.9).Choose(costs, absl::ZeroDuration(), 0)), 0);
  EXPECT_TRUE(Candidates().Choose(costs).empty());
}

TEST(ChooseDraftLengthsTest, CountsSequencesThatGuessNothing) {
  const StepCosts costs = Known(Flat);
  const auto with_others = [&](int64_t others) {
    return Candidates().With(1, 0.3).Choose(costs, absl::ZeroDuration(), 100, others)[0];
  };
  EXPECT_GT(with_others(0), 0);
  // 0.4 tokens more of 16 are less than kMinGain.
  EXPECT_EQ(with_others(15), 0);
}

TEST(ChooseDraftLengthsTest, ARoundOfTheModelIsPaidOnceForAll) {
  const StepCosts costs = Known(Flat);
  Candidates one;
  one.Add(0.8, 16, true);
  const int64_t free = one.Choose(costs)[0];
  const int64_t alone = one.Choose(costs, absl::Milliseconds(6))[0];
  EXPECT_EQ(free, 16);
  EXPECT_GT(alone, 0);
  EXPECT_LT(alone, 6);
  EXPECT_EQ(one.Choose(costs, absl::Milliseconds(25))[0], 0);
  // What is looked up needs no round, and is guessed as far as it is likely.
  Candidates both;
  both.Add(0.8, 16, true);
  both.Add(0.8, 16, false);
  const std::vector<int64_t> lengths = both.Choose(costs, absl::Milliseconds(6));
  EXPECT_LT(lengths[0], 6);
  EXPECT_EQ(lengths[1], 16);
}

// Against every possible choice, with costs that rise in any way.
TEST(ChooseDraftLengthsTest, FindsTheBestOfAllChoices) {
  std::mt19937 random(2);
  std::uniform_real_distribution<double> uniform(0, 1);
  for (int trial = 0; trial < 200; ++trial) {
    StepCosts costs;
    std::vector<double> steps = {10};
    for (int i = 0; i < 16; ++i) steps.push_back(steps.back() + uniform(random) * 4);
    for (int i = 0; i < 3; ++i) {
      for (int64_t n = 1; n <= 16; ++n) {
        costs.Record(n, absl::Milliseconds(steps[static_cast<size_t>(n)]));
      }
    }
    std::vector<std::vector<double>> chances(3, std::vector<double>(4));
    std::vector<DraftCandidate> candidates;
    for (auto& of_one : chances) {
      for (double& chance : of_one) chance = 0.5 + uniform(random) / 2;
      candidates.push_back({of_one, random() % 2 == 0});
    }
    const double round = uniform(random) * 3;
    const auto rate = [&](const std::vector<int64_t>& lengths) {
      double expected = 3;
      int64_t rounds = 0;
      for (size_t i = 0; i < 3; ++i) {
        double reached = 1;
        for (int64_t j = 0; j < lengths[i]; ++j) {
          expected += reached *= chances[i][static_cast<size_t>(j)];
        }
        if (candidates[i].by_model) rounds = std::max(rounds, lengths[i]);
      }
      return expected / (Estimate(costs, 3 + Sum(lengths)) + static_cast<double>(rounds) * round);
    };
    double best = 0;
    for (int64_t code = 0; code < 125; ++code) {
      best = std::max(best, rate({code % 5, code / 5 % 5, code / 25}));
    }
    const auto chosen = ChooseDraftLengths(candidates, 3, costs, absl::Milliseconds(round), 100);
    const double none = rate({0, 0, 0});
    EXPECT_NEAR(rate(chosen), best >= kMinGain * none ? best : none, 1e-9);
  }
}

// A machine, its sequences and its drift, in fake time.
struct Machine {
  const char* name;
  Cost cost;
  bool drafts_pay = true;
  // What the contexts add, at most, as a share; they grow for so many steps and begin anew.
  double contexts = 1;
  int64_t period = 2500;
};

struct Work {
  const char* name;
  // The chance that a draft token is right, by step; a sequence has a draft this often.
  std::function<double(int64_t)> chance;
  double drafts = 1;
  double least_gain = 0.98;  // where drafts pay; 0.98 where they do not
};

// Tokens a second, by those without drafts. Now and then all is twice as slow for 30 steps. Noise
// of 3 %, and a step in 100 is five times as long (measured so, but not charged: it would be as
// long without drafts).
double GainOf(const Machine& machine, const Work& work, size_t sequences) {
  constexpr int64_t kSteps = 10'000;
  std::mt19937 random(3);
  std::uniform_real_distribution<double> uniform(0, 1);
  StepCosts costs;
  double tokens = 0;
  double with = 0;
  double without = 0;
  for (int64_t step = 0; step < kSteps; ++step) {
    const double chance = work.chance(step);
    Candidates candidates;
    for (size_t i = 0; i < sequences; ++i) {
      candidates.Add(chance, uniform(random) < work.drafts ? 16 : 0);
    }
    const std::vector<int64_t> lengths = candidates.Choose(costs);
    double drawn = 0;
    for (const int64_t length : lengths) {
      double reached = 1;
      for (int64_t j = 0; j <= length; ++j, reached *= chance) drawn += reached;
    }
    const auto alone = static_cast<int64_t>(sequences);
    double drift = 1 + machine.contexts * static_cast<double>(step % machine.period) /
                           static_cast<double>(machine.period);
    if (step % 1000 < 30) drift *= 2;
    const double took = machine.cost(alone + Sum(lengths)) * drift;
    tokens += drawn;
    with += took;
    without += drawn / static_cast<double>(sequences) * machine.cost(alone) * drift;
    const double noise = 0.97 + 0.06 * uniform(random);
    costs.Record(alone + Sum(lengths),
                 absl::Milliseconds(took * (uniform(random) < 0.01 ? 5 : noise)));
  }
  return without / with;
}

TEST(SpeculationPolicyTest, NeverMuchSlowerThanWithoutDraftsAndFasterWhereTheyPay) {
  const std::vector<Machine> machines = {
      {"flat", Flat}, {"flat to 32", FlatTo32},  {"shared", Shared},
      {"jump", Jump}, {"linear", Linear, false}, {"linear, contexts", Linear, false, 4, 700}};
  const auto constant = [](double chance) { return [=](int64_t) { return chance; }; };
  const std::vector<Work> works = {
      {"prose", constant(0.2), 0.25},
      {"prose, matching", constant(0.35)},
      {"text", constant(0.6), 0.5},
      {"copying", constant(0.95), 1, 1.4},
      {"by turns", [](int64_t step) { return step / 300 % 2 == 0 ? 0.97 : 0.1; }, 1, 1.3}};
  for (const Machine& machine : machines) {
    for (const Work& work : works) {
      std::printf("%-18s %-16s", machine.name, work.name);
      for (const size_t sequences : {1, 4, 16}) {
        const double gain = GainOf(machine, work, sequences);
        std::printf("  %2zu: %5.3f", sequences, gain);
        EXPECT_GE(gain, machine.drafts_pay ? work.least_gain : 0.98)
            << machine.name << ", " << work.name << ", " << sequences;
      }
      std::printf("\n");
    }
  }
}

}  // namespace
}  // namespace tlm
