#include "model/constraint/bytes/budget.h"

#include <gtest/gtest.h>

namespace tlm {
namespace {

class ManualClock : public Clock {
 public:
  absl::Time Now() override { return now; }
  absl::Time now = absl::UnixEpoch();
};

TEST(Budget, EndsWithTheTimeAndNamesWhatCostIt) {
  ManualClock clock;
  Budget budget(absl::Milliseconds(250), nullptr, &clock);
  EXPECT_TRUE(budget.Spend(1, "'pattern' at #/a").ok());
  clock.now += absl::Milliseconds(249);
  EXPECT_TRUE(budget.Spend(1'000'000, "'pattern' at #/a").ok());
  clock.now += absl::Milliseconds(1);
  const absl::Status status = budget.Spend(1'000'000, "'enum' at #/b");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "compiling the constraint takes longer than the limit of 250ms, at 'enum' at #/b");
  EXPECT_FALSE(budget.Spend(0, "'enum' at #/b").ok());
}

TEST(Budget, SmallStepsComeToALook) {
  ManualClock clock;
  Budget budget(absl::Milliseconds(1), nullptr, &clock);
  ASSERT_TRUE(budget.Spend(1, "a").ok());
  clock.now += absl::Milliseconds(2);
  int steps = 0;
  while (budget.Spend(1, "a").ok()) ASSERT_LT(++steps, 10'000);
}

TEST(Budget, EndsWhenCancelled) {
  std::atomic<bool> cancelled = false;
  Budget budget(absl::Hours(1), &cancelled);
  EXPECT_TRUE(budget.Spend(5000, "a").ok());
  cancelled = true;
  EXPECT_EQ(budget.Spend(5000, "a").code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace tlm
