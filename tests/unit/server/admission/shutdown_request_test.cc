#include "server/admission/shutdown_request.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

namespace tlm {
namespace {

TEST(ShutdownRequestTest, TheFirstAskerDecidesTheTerms) {
  for (const std::optional<absl::Duration> limit :
       {std::optional(absl::Seconds(5)), std::optional<absl::Duration>()}) {
    ShutdownRequest shutdown;
    EXPECT_FALSE(shutdown.asked());
    EXPECT_TRUE(shutdown.Ask({.drain_limit = limit}));
    EXPECT_FALSE(shutdown.Ask({.withdrawal_grace = false, .drain_limit = absl::Seconds(9)}));
    EXPECT_FALSE(shutdown.Ask({}));
    EXPECT_TRUE(shutdown.asked());
    const ShutdownTerms terms = shutdown.Wait();
    EXPECT_EQ(terms.drain_limit, limit);
    EXPECT_TRUE(terms.withdrawal_grace);
  }
}

TEST(ShutdownRequestTest, WakesTheWaitingThread) {
  ShutdownRequest shutdown;
  std::optional<absl::Duration> limit;
  std::thread waiter([&] { limit = shutdown.Wait().drain_limit; });
  shutdown.Ask({.drain_limit = absl::Seconds(3)});
  waiter.join();
  EXPECT_EQ(limit, absl::Seconds(3));
}

TEST(ShutdownRequestTest, OneOfManyAskersIsTheFirst) {
  ShutdownRequest shutdown;
  std::atomic<int> first{0};
  std::vector<std::thread> askers;
  for (int i = 0; i < 8; ++i) {
    askers.emplace_back([&] { first += shutdown.Ask({}) ? 1 : 0; });
  }
  for (std::thread& asker : askers) asker.join();
  EXPECT_EQ(first, 1);
}

TEST(ShutdownRequestTest, WithoutSkipAWaitLastsItsTime) {
  ShutdownRequest shutdown;
  EXPECT_FALSE(shutdown.WaitForSkip(absl::ZeroDuration()));
  shutdown.Ask({});
  EXPECT_FALSE(shutdown.WaitForSkip(absl::Milliseconds(1)));
}

TEST(ShutdownRequestTest, SkipDrainEndsEveryWaitPresentAndFuture) {
  ShutdownRequest shutdown;
  bool hurried = false;
  std::thread waiter([&] { hurried = shutdown.WaitForSkip(absl::InfiniteDuration()); });
  shutdown.SkipDrain();
  waiter.join();
  EXPECT_TRUE(hurried);
  EXPECT_TRUE(shutdown.WaitForSkip(absl::InfiniteDuration()));
}

}  // namespace
}  // namespace tlm
