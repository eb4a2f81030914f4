#include "server/batching/rate_meter.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace tlm
