#include "server/observe/line_limit.h"

#include <gtest/gtest.h>

namespace tlm {
namespace {

TEST(LineLimitTest, LetsSoManyThroughInASecond) {
  LineLimit limit(2);
  const absl::Time now = absl::FromUnixSeconds(100);
  EXPECT_EQ(limit.Take(now), 0);
  EXPECT_EQ(limit.Take(now), 0);
  EXPECT_EQ(limit.Take(now + absl::Milliseconds(999)), std::nullopt);
}

TEST(LineLimitTest, TellsTheNextOneHowManyWereLeftOut) {
  LineLimit limit(1);
  const absl::Time now = absl::FromUnixSeconds(100);
  EXPECT_EQ(limit.Take(now), 0);
  EXPECT_EQ(limit.Take(now), std::nullopt);
  EXPECT_EQ(limit.Take(now), std::nullopt);
  EXPECT_EQ(limit.Take(now + absl::Seconds(1)), 2);
  EXPECT_EQ(limit.Take(now + absl::Seconds(2)), 0);
}

}  // namespace
}  // namespace tlm
