#include "server/process/health_monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string_view>

#include "model/base/errors.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kStall = absl::Seconds(10);
constexpr absl::Duration kNone = absl::ZeroDuration();

struct Case {
  const char* name;
  EngineStats stats;
  absl::Duration since_progress;
  absl::StatusCode code = absl::StatusCode::kOk;
  const char* message = "";
};

EngineStats Busy() {
  EngineStats stats;
  stats.busy = true;
  return stats;
}
EngineStats Faulty(int64_t in_a_row, std::string_view reason = "") {
  EngineStats stats;
  stats.fault = Internal("the device is gone");
  if (!reason.empty()) stats.fault = WithReason(stats.fault, reason);
  stats.consecutive_faults = in_a_row;
  return stats;
}

class EngineHealthTest : public ::testing::TestWithParam<Case> {};

TEST_P(EngineHealthTest, IsWhatTheFiguresTell) {
  EngineStats stats = GetParam().stats;
  stats.last_progress = absl::UnixEpoch();
  EXPECT_THAT(EngineHealth(stats, absl::UnixEpoch() + GetParam().since_progress, kStall),
              StatusIs(GetParam().code, HasSubstr(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    Figures, EngineHealthTest,
    ::testing::Values(Case{"AStepThatTakesItsTimeIsProgress", Busy(), kStall},
                      Case{"AStepThatTakesLongerIsAStall", Busy(), kStall + absl::Seconds(1),
                           absl::StatusCode::kUnavailable, "11s"},
                      Case{"AnIdleEngineNeverStalls", EngineStats(), absl::Hours(9)},
                      Case{"AFaultThatDoesNotPersistIsForgiven", Faulty(kPersistentFaults - 1),
                           kNone},
                      Case{"AFaultThatPersistsIsReportedAsItIs", Faulty(kPersistentFaults), kNone,
                           absl::StatusCode::kInternal, "the device is gone"},
                      Case{"FaultsAreCounted", Faulty(1000), kNone, absl::StatusCode::kInternal,
                           "1000 steps failed in a row"},
                      Case{"ALostDeviceIsNotForgivenOnce", Faulty(1, kDeviceLost), kNone,
                           absl::StatusCode::kInternal, "the device is gone"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tlm
