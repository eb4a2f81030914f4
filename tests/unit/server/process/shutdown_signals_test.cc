#include "server/process/shutdown_signals.h"

#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "server/config/command_line.h"

namespace tlm {
namespace {

using ShutdownWatchdogDeathTest = ::testing::Test;

TEST_F(ShutdownWatchdogDeathTest, EndsTheProcessAtItsLimit) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const ShutdownWatchdog end("the test has not ended", absl::Milliseconds(1));
        for (;;) absl::SleepFor(absl::Hours(1));
      },
      ::testing::ExitedWithCode(kExitForced), "");
}

TEST_F(ShutdownWatchdogDeathTest, LetsTheProcessLiveWhenItDiesInTime) {
  { const ShutdownWatchdog end("", absl::InfiniteDuration()); }
  { const ShutdownWatchdog end("", absl::Hours(1)); }
}

}  // namespace
}  // namespace tlm
