#include "server/batching/service_rates.h"

#include <gtest/gtest.h>

#include "tests/unit/server/batching/requests.h"

namespace tlm {
namespace {

TEST(RateMeterTest, KnowsNothingBeforeTimePasses) {
  RateMeter meter;
  EXPECT_EQ(meter.per_second(), 0);
  meter.Record(5, absl::ZeroDuration());
  EXPECT_EQ(meter.per_second(), 0);
}

TEST(RateMeterTest, AveragesWhatItRecorded) {
  RateMeter meter;
  for (int i = 0; i < 50; ++i) {
    meter.Record(0, absl::Milliseconds(10));
    meter.Record(4, absl::Milliseconds(10));
  }
  EXPECT_NEAR(meter.per_second(), 200, 2);
}

TEST(RateMeterTest, ForgetsThePast) {
  RateMeter meter;
  for (int i = 0; i < 100; ++i) meter.Record(100, absl::Seconds(1));
  for (int i = 0; i < 100; ++i) meter.Record(1, absl::Seconds(1));
  EXPECT_NEAR(meter.per_second(), 1, 0.1);
}

TEST(RateMeterTest, ForgetsSoonerWithAShorterMemory) {
  RateMeter meter(absl::Seconds(1));
  meter.Record(100, absl::Seconds(1));
  meter.Record(0, absl::Seconds(1));
  EXPECT_NEAR(meter.per_second(), 27, 1);
}

TEST(RateMeterTest, FadingKeepsTheAverageAndMakesItLight) {
  RateMeter meter;
  meter.Record(1000, absl::Seconds(10));
  meter.Fade(absl::Minutes(1));
  EXPECT_DOUBLE_EQ(meter.per_second(), 100);
  EXPECT_LT(meter.known(), absl::Milliseconds(100));
  meter.Fade(-absl::Minutes(1));
  meter.Record(1, absl::Seconds(1));
  EXPECT_NEAR(meter.per_second(), 3, 1);
}

TEST(RateMeterTest, IgnoresAClockSetBack) {
  RateMeter meter;
  meter.Record(10, absl::Seconds(1));
  meter.Record(10, -absl::Seconds(1));
  EXPECT_DOUBLE_EQ(meter.per_second(), 10);
}

constexpr absl::Time kStart = absl::UnixEpoch();

// Rates with a clock that moves with what is recorded.
class ServiceRatesTest : public ::testing::Test {
 protected:
  void Steps(int count, const ServiceRates::Step& step) {
    for (int i = 0; i < count; ++i) {
      now_ += step.elapsed;
      rates_.RecordStep(step, now_);
    }
  }
  void Prefills(int count, int64_t tokens, absl::Duration elapsed) {
    Steps(count, {.prefill_tokens = tokens, .elapsed = elapsed});
  }
  void Decodes(int count, int64_t tokens, absl::Duration elapsed) {
    Steps(count, {.decode_tokens = tokens, .elapsed = elapsed});
  }
  double LeastSeconds(const LeastWork& work) const {
    return absl::ToDoubleSeconds(rates_.Estimates().LeastTime(work, now_));
  }
  bool Unreachable(const LeastWork& work, absl::Duration within) const {
    return rates_.Estimates().Unreachable({}, work, now_, now_ + within);
  }

  ServiceRates rates_{512};
  absl::Time now_ = kStart;
};

TEST(LeastWorkTest, OfAGenerationIsItsPromptAndItsFirstTokens) {
  Request request = GenerateRequest(Prompt(100), 50);
  EXPECT_EQ(LeastWorkOf(request, 0).prefill_tokens, 100);
  EXPECT_EQ(LeastWorkOf(request, 0).decode_steps, 0);
  request.generate()->stop.min_new_tokens = 20;
  EXPECT_EQ(LeastWorkOf(request, 0).decode_steps, 19);
  request.generate()->generated = Prompt(12);
  EXPECT_EQ(LeastWorkOf(request, 0).prefill_tokens, 112);
  EXPECT_EQ(LeastWorkOf(request, 0).decode_steps, 7);
}

TEST(LeastWorkTest, CachedTokensAreNotComputedButTheLastOneIs) {
  const Request request = GenerateRequest(Prompt(100), 50);
  EXPECT_EQ(LeastWorkOf(request, 64).prefill_tokens, 36);
  EXPECT_EQ(LeastWorkOf(request, 1000).prefill_tokens, 1);
}

TEST(LeastWorkTest, OfTheOthersIsWhatIsAskedFor) {
  EXPECT_EQ(LeastWorkOf(ForwardRequest(Prompt(100), {3, 40}, UnreadStream()), 0).prefill_tokens,
            41);
  // The last token of a continuation is looked up in the row before it.
  EXPECT_EQ(LeastWorkOf(ScoreRequestFor(Prompt(100), {1, 11}), 0).prefill_tokens, 110);
}

TEST(LeastWorkTest, IsNothingBeforeASoftDeadline) {
  Request request = GenerateRequest(Prompt(100), 50);
  request.deadline = kStart + absl::Seconds(2);
  request.soft_deadline = kStart + absl::Seconds(1);
  EXPECT_EQ(LeastWorkOf(request, 0).prefill_tokens, 0);
  request.soft_deadline = kStart + absl::Seconds(3);
  EXPECT_EQ(LeastWorkOf(request, 0).prefill_tokens, 100);
}

TEST_F(ServiceRatesTest, WithoutMeasurementsNothingIsUnreachable) {
  EXPECT_FALSE(
      Unreachable({.prefill_tokens = 1 << 20, .decode_steps = 1 << 20}, absl::Nanoseconds(1)));
  EXPECT_EQ(rates_.Estimates().QueueTime({1000, 1 << 20}), absl::ZeroDuration());
  // Nor after the first steps, which are often slow.
  Prefills(2, 512, absl::Seconds(10));
  EXPECT_FALSE(Unreachable({.prefill_tokens = 1 << 20}, absl::Nanoseconds(1)));
}

TEST_F(ServiceRatesTest, AddsPrefillAndDecodes) {
  Prefills(10, 512, absl::Milliseconds(512));
  Decodes(10, 8, absl::Milliseconds(20));
  EXPECT_NEAR(LeastSeconds({.prefill_tokens = 4096}), 4.096, 0.01);
  EXPECT_NEAR(LeastSeconds({.prefill_tokens = 1000, .decode_steps = 50}), 2, 0.01);
}

TEST_F(ServiceRatesTest, RefusesOnlyWhatTwiceTheSpeedWouldNotReach) {
  Prefills(10, 500, absl::Milliseconds(500));
  EXPECT_TRUE(Unreachable({.prefill_tokens = 4000}, absl::Milliseconds(1990)));
  EXPECT_FALSE(Unreachable({.prefill_tokens = 4000}, absl::Milliseconds(2010)));
  EXPECT_FALSE(Unreachable({.prefill_tokens = 4000}, absl::InfiniteDuration()));
}

TEST_F(ServiceRatesTest, OneSlowStepChangesNothing) {
  Prefills(10, 500, absl::Milliseconds(500));
  Decodes(10, 1, absl::Milliseconds(10));
  EXPECT_NEAR(LeastSeconds({.prefill_tokens = 1000}), 1, 0.01);
  EXPECT_NEAR(LeastSeconds({.decode_steps = 100}), 1, 0.01);
  Prefills(1, 500, absl::Milliseconds(1500));
  Decodes(1, 1, absl::Milliseconds(30));
  EXPECT_LE(LeastSeconds({.prefill_tokens = 1000}), 1.15);
  EXPECT_LE(LeastSeconds({.decode_steps = 100}), 1.01);
}

TEST_F(ServiceRatesTest, AFasterStepCountsAtOnceASlowerPaceGradually) {
  Decodes(50, 1, absl::Milliseconds(100));
  EXPECT_NEAR(LeastSeconds({.decode_steps = 10}), 1, 0.01);
  Decodes(1, 1, absl::Milliseconds(10));
  EXPECT_NEAR(LeastSeconds({.decode_steps = 10}), 0.1, 0.01);
  Decodes(50, 1, absl::Milliseconds(100));
  EXPECT_LT(LeastSeconds({.decode_steps = 10}), 0.4);
  Decodes(2000, 1, absl::Milliseconds(100));
  EXPECT_NEAR(LeastSeconds({.decode_steps = 10}), 1, 0.05);
}

TEST_F(ServiceRatesTest, ShortPrefillsSayLittleAboutLongOnes) {
  // One token in 10 ms: a device that takes 10 ms for a step of any size may do 512 in one.
  Prefills(10, 1, absl::Milliseconds(10));
  EXPECT_NEAR(LeastSeconds({.prefill_tokens = 512}), 0.01, 0.001);
  EXPECT_NEAR(LeastSeconds({.prefill_tokens = 5120}), 0.1, 0.001);
  Prefills(10, 512, absl::Milliseconds(12));
  EXPECT_NEAR(LeastSeconds({.prefill_tokens = 5120}), 0.12, 0.001);
}

TEST_F(ServiceRatesTest, DecodesInAStepAreNotHeldAgainstItsPrefill) {
  Steps(10, {.prefill_tokens = 100, .decode_tokens = 100, .elapsed = absl::Milliseconds(200)});
  EXPECT_NEAR(LeastSeconds({.prefill_tokens = 100}), 0.1, 0.001);
}

TEST_F(ServiceRatesTest, AnEstimateThatNothingConfirmsFades) {
  Prefills(10, 500, absl::Seconds(50));  // a machine that had something else to do
  const LeastWork work{.prefill_tokens = 500};
  EXPECT_TRUE(Unreachable(work, absl::Seconds(2)));
  int waited = 0;
  while (Unreachable(work, absl::Seconds(2))) {
    now_ += absl::Seconds(1);
    ASSERT_LE(++waited, 30);
  }
  EXPECT_GE(waited, 5);
  // What was let through is measured: still slow, then fast again.
  Prefills(1, 500, absl::Seconds(50));
  EXPECT_TRUE(Unreachable(work, absl::Seconds(2)));
  Prefills(1, 500, absl::Milliseconds(500));
  EXPECT_FALSE(Unreachable(work, absl::Seconds(2)));
}

TEST_F(ServiceRatesTest, DrainCountsOnlyWhileSomeHadToWait) {
  // Places that were free are filled at once: no pace to wait by.
  rates_.RecordDrain({.requests = 16, .prompt_tokens = 1600}, 10, absl::Milliseconds(10));
  EXPECT_EQ(rates_.Estimates().drained_requests_per_second(), 0);
  for (int i = 0; i < 1000; ++i) {
    const QueueLoad started = i % 10 == 0 ? QueueLoad{1, 100} : QueueLoad{};
    rates_.RecordDrain(started, 10, absl::Milliseconds(10));
  }
  const ServiceEstimates estimates = rates_.Estimates();
  EXPECT_NEAR(estimates.drained_requests_per_second(), 10, 0.5);
  EXPECT_NEAR(absl::ToDoubleSeconds(estimates.QueueTime({50, 5000})), 5, 0.3);
  EXPECT_NEAR(absl::ToDoubleSeconds(estimates.TimePerRequest()), 0.1, 0.01);
  EXPECT_NEAR(absl::ToDoubleSeconds(estimates.TimeForTokens(500)), 0.5, 0.03);
  EXPECT_EQ(estimates.QueueTime({}), absl::ZeroDuration());
  // Of longer prompts than before, the tokens decide; for a refusal, what takes less.
  EXPECT_NEAR(absl::ToDoubleSeconds(estimates.QueueTime({50, 10000})), 10, 0.6);
  EXPECT_FALSE(estimates.Unreachable({50, 10000}, {}, now_, now_ + absl::Seconds(3)));
  EXPECT_TRUE(estimates.Unreachable({50, 10000}, {}, now_, now_ + absl::Seconds(2)));
}

TEST_F(ServiceRatesTest, AForgottenPaceIsNotKnown) {
  rates_.RecordDrain({}, 1, absl::ZeroDuration());
  rates_.RecordDrain({.requests = 10, .prompt_tokens = 1000}, 0, absl::Seconds(10));
  EXPECT_NEAR(rates_.Estimates().drained_requests_per_second(), 1, 0.01);
  // Without a waiting request the pace cannot be measured: the last measurement fades.
  Decodes(1, 1, absl::Milliseconds(10));
  now_ += absl::Minutes(1);
  Decodes(1, 1, absl::Milliseconds(10));
  EXPECT_EQ(rates_.Estimates().drained_requests_per_second(), 0);
  // And the new one counts at once.
  rates_.RecordDrain({}, 1, absl::ZeroDuration());
  rates_.RecordDrain({.requests = 50, .prompt_tokens = 5000}, 0, absl::Seconds(1));
  EXPECT_NEAR(rates_.Estimates().drained_requests_per_second(), 50, 5);
}

TEST_F(ServiceRatesTest, LikelyTimeIsThatOfWhatOutputsUsed) {
  Decodes(100, 8, absl::Milliseconds(20));
  const Request request = GenerateRequest(Prompt(1), 1000);
  EXPECT_EQ(rates_.Estimates().LikelyTime(request), absl::ZeroDuration());
  for (int i = 0; i < 100; ++i) rates_.RecordOutput(i % 2 == 0 ? 10 : 30, 100);
  EXPECT_NEAR(absl::ToDoubleSeconds(rates_.Estimates().LikelyTime(request)), 4, 0.5);
  for (int i = 0; i < 100; ++i) rates_.RecordLateOutput();
  EXPECT_NEAR(absl::ToDoubleSeconds(rates_.Estimates().LikelyTime(request)), 20, 0.5);
}

TEST_F(ServiceRatesTest, TokensPerSecondCountIdleTime) {
  Steps(500, {.prefill_tokens = 10, .decode_tokens = 2, .elapsed = absl::Milliseconds(20)});
  EXPECT_NEAR(rates_.Estimates().PrefillTokensPerSecond(now_), 500, 1);
  EXPECT_NEAR(rates_.Estimates().DecodeTokensPerSecond(now_), 100, 1);
  EXPECT_LT(rates_.Estimates().DecodeTokensPerSecond(now_ + absl::Seconds(5)), 50);
  EXPECT_LT(rates_.Estimates().DecodeTokensPerSecond(now_ + absl::Minutes(5)), 0.1);
  EXPECT_EQ(ServiceEstimates().DecodeTokensPerSecond(now_), 0);
}

TEST_F(ServiceRatesTest, ImpossibleStepsAreIgnored) {
  Prefills(10, 500, absl::Milliseconds(500));
  const double before = LeastSeconds({.prefill_tokens = 1000});
  rates_.RecordStep({.prefill_tokens = 500, .elapsed = absl::ZeroDuration()}, now_);
  rates_.RecordStep({.prefill_tokens = 500, .elapsed = -absl::Seconds(1)}, now_);
  rates_.RecordStep({.elapsed = absl::Seconds(1)}, now_);
  EXPECT_EQ(LeastSeconds({.prefill_tokens = 1000}), before);
  // A clock set back leaves no estimate from the future.
  EXPECT_EQ(absl::ToDoubleSeconds(
                rates_.Estimates().LeastTime({.prefill_tokens = 1000}, now_ - absl::Hours(1))),
            before);
}

}  // namespace
}  // namespace tlm
