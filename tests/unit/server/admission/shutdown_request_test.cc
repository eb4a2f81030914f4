#include "server/admission/shutdown_request.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

namespace tlm {
namespace {

TEST(ShutdownRequestTest, NobodyHasAskedAtFirst) {
  const ShutdownRequest shutdown;
  EXPECT_FALSE(shutdown.asked());
}

TEST(ShutdownRequestTest, TheFirstAskerDecidesTheLimit) {
  ShutdownRequest shutdown;
  EXPECT_TRUE(shutdown.Ask(absl::Seconds(5)));
  EXPECT_FALSE(shutdown.Ask(absl::Seconds(9)));
  EXPECT_FALSE(shutdown.Ask(std::nullopt));
  EXPECT_TRUE(shutdown.asked());
  EXPECT_EQ(shutdown.Wait(), absl::Seconds(5));
}

TEST(ShutdownRequestTest, AskingWithoutALimitCountsAsWell) {
  ShutdownRequest shutdown;
  EXPECT_TRUE(shutdown.Ask(std::nullopt));
  EXPECT_FALSE(shutdown.Ask(absl::Seconds(9)));
  EXPECT_EQ(shutdown.Wait(), std::nullopt);
}

TEST(ShutdownRequestTest, WakesWhoWaits) {
  ShutdownRequest shutdown;
  std::optional<absl::Duration> limit;
  std::thread waiter([&] { limit = shutdown.Wait(); });
  shutdown.Ask(absl::Seconds(3));
  waiter.join();
  EXPECT_EQ(limit, absl::Seconds(3));
}

TEST(ShutdownRequestTest, OneOfManyAskersIsTheFirst) {
  ShutdownRequest shutdown;
  std::atomic<int> first{0};
  std::vector<std::thread> askers;
  for (int i = 0; i < 8; ++i) {
    askers.emplace_back([&] { first += shutdown.Ask(std::nullopt) ? 1 : 0; });
  }
  for (std::thread& asker : askers) asker.join();
  EXPECT_EQ(first, 1);
}

}  // namespace
}  // namespace tlm
