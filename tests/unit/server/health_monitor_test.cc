#include "server/health_monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/base/errors.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using ::testing::_;
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

TEST(EngineHealthTest, ADeviceFaultIsReportedAsItIs) {
  EngineStats stats = BusySince(absl::UnixEpoch());
  stats.busy = false;
  stats.fault = Internal("the device is gone");
  EXPECT_THAT(EngineHealth(stats, absl::UnixEpoch(), kStall),
              StatusIs(absl::StatusCode::kInternal, "the device is gone"));
}

}  // namespace
}  // namespace tlm
