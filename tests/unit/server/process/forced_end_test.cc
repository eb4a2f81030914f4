#include "server/process/forced_end.h"

#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "server/config/command_line.h"

namespace tlm {
namespace {

using ForcedEndDeathTest = ::testing::Test;

TEST_F(ForcedEndDeathTest, EndsTheProcessAtItsLimit) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const ForcedEnd end("the test has not ended", absl::Milliseconds(1));
        for (;;) absl::SleepFor(absl::Hours(1));
      },
      ::testing::ExitedWithCode(kExitForced), "");
}

TEST_F(ForcedEndDeathTest, LetsTheProcessLiveWhenItDiesInTime) {
  { const ForcedEnd end("", absl::InfiniteDuration()); }
  { const ForcedEnd end("", absl::Hours(1)); }
}

}  // namespace
}  // namespace tlm
