#include "server/process/health_monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/base/errors.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kStall = absl::Seconds(10);

EngineStats BusySince(absl::Time progress) {
  EngineStats stats;
  stats.busy = true;
  stats.last_progress = progress;
  return stats;
}

TEST(EngineHealthTest, AStepThatTakesItsTimeIsProgress) {
  EXPECT_THAT(EngineHealth(BusySince(absl::UnixEpoch()), absl::UnixEpoch() + kStall, kStall),
              IsOk());
}

TEST(EngineHealthTest, AStepThatTakesLongerIsAStall) {
  const absl::Time now = absl::UnixEpoch() + kStall + absl::Seconds(1);
  EXPECT_THAT(EngineHealth(BusySince(absl::UnixEpoch()), now, kStall),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("11s")));
}

TEST(EngineHealthTest, AnIdleEngineNeverStalls) {
  EngineStats stats = BusySince(absl::UnixEpoch());
  stats.busy = false;
  EXPECT_THAT(EngineHealth(stats, absl::UnixEpoch() + absl::Hours(9), kStall), IsOk());
}

TEST(EngineHealthTest, ALongPrefillIsManyStepsAndNoStall) {
  absl::Time now = absl::UnixEpoch();
  EngineStats stats = BusySince(now);
  for (int step = 0; step < 100; ++step) {
    now += kStall;
    EXPECT_THAT(EngineHealth(stats, now, kStall), IsOk());
    stats.last_progress = now;
  }
}

TEST(EngineHealthTest, AStallEndsWithTheStep) {
  const absl::Time now = absl::UnixEpoch() + absl::Hours(1);
  EXPECT_FALSE(EngineHealth(BusySince(absl::UnixEpoch()), now, kStall).ok());
  EXPECT_THAT(EngineHealth(BusySince(now), now, kStall), IsOk());
}

EngineStats Faulty(int64_t in_a_row) {
  EngineStats stats;
  stats.fault = Internal("the device is gone");
  stats.consecutive_faults = in_a_row;
  return stats;
}

TEST(EngineHealthTest, AFaultThatDoesNotPersistIsForgiven) {
  for (int64_t in_a_row = 1; in_a_row < kPersistentFaults; ++in_a_row) {
    EXPECT_THAT(EngineHealth(Faulty(in_a_row), absl::UnixEpoch(), kStall), IsOk());
  }
}

TEST(EngineHealthTest, AFaultThatPersistsIsReportedAsItIs) {
  EXPECT_THAT(EngineHealth(Faulty(kPersistentFaults), absl::UnixEpoch(), kStall),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("the device is gone")));
  EXPECT_THAT(EngineHealth(Faulty(1000), absl::UnixEpoch(), kStall),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("1000 steps failed in a row")));
}

TEST(EngineHealthTest, ALostDeviceIsNotForgivenOnce) {
  EngineStats stats = Faulty(1);
  stats.fault = WithReason(stats.fault, kDeviceLost);
  EXPECT_THAT(EngineHealth(stats, absl::UnixEpoch(), kStall),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("the device is gone")));
}

TEST(EngineHealthTest, AGoodStepEndsAFault) {
  EngineStats stats = Faulty(kPersistentFaults);
  EXPECT_FALSE(EngineHealth(stats, absl::UnixEpoch(), kStall).ok());
  stats.fault = absl::OkStatus();
  stats.consecutive_faults = 0;
  EXPECT_THAT(EngineHealth(stats, absl::UnixEpoch(), kStall), IsOk());
}

}  // namespace
}  // namespace tlm
