#include "client/cli/load_monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace tlm::cli {
namespace {

using testing::ElementsAre;

const absl::Time kStart = absl::FromUnixSeconds(1'000'000);

v1::GetLoadResponse Load(int64_t uptime, uint64_t queried, uint64_t hit, double decode = 0) {
  v1::GetLoadResponse load;
  load.mutable_uptime()->set_seconds(uptime);
  load.mutable_prefix_cache()->set_queried_tokens(queried);
  load.mutable_prefix_cache()->set_hit_tokens(hit);
  load.set_decode_tokens_per_second(decode);
  return load;
}

TEST(LoadHistoryTest, KeepsTheLatestRates) {
  LoadHistory history;
  for (size_t i = 0; i < LoadHistory::kMaxSamples + 2; ++i) {
    history.Add(Load(1, 0, 0, static_cast<double>(i)), kStart);
  }
  EXPECT_EQ(history.decode().size(), LoadHistory::kMaxSamples);
  EXPECT_EQ(history.decode().front(), 2);
  EXPECT_EQ(history.prefill().size(), LoadHistory::kMaxSamples);
}

TEST(LoadHistoryTest, TakesGapsAndNonsenseForNothing) {
  LoadHistory history;
  history.Add(Load(1, 0, 0, 5), kStart);
  history.AddGap();
  history.Add(Load(1, 0, 0, std::numeric_limits<double>::infinity()), kStart);
  history.Add(Load(1, 0, 0, std::numeric_limits<double>::quiet_NaN()), kStart);
  history.Add(Load(1, 0, 0, -3), kStart);
  EXPECT_THAT(history.decode(), ElementsAre(5, 0, 0, 0, 0));
}

TEST(LoadHistoryTest, TellsTheHitShareOfTheLastMinute) {
  LoadHistory history;
  EXPECT_FALSE(history.RecentHitShare());
  history.Add(Load(10, 1000, 0), kStart);
  EXPECT_FALSE(history.RecentHitShare());
  history.Add(Load(30, 1100, 50), kStart + absl::Seconds(20));
  EXPECT_DOUBLE_EQ(*history.RecentHitShare(), 0.5);
  history.Add(Load(80, 1200, 150), kStart + absl::Seconds(70));
  history.Add(Load(85, 1300, 250), kStart + absl::Seconds(85));
  EXPECT_DOUBLE_EQ(*history.RecentHitShare(), 1.0);
}

TEST(LoadHistoryTest, ForgetsTheCountsOfAServerThatWasStartedAnew) {
  LoadHistory history;
  history.Add(Load(100, 10, 10), kStart);
  history.Add(Load(2, 500, 0), kStart + absl::Seconds(1));
  EXPECT_FALSE(history.RecentHitShare());
  history.Add(Load(3, 600, 10), kStart + absl::Seconds(2));
  EXPECT_DOUBLE_EQ(*history.RecentHitShare(), 0.1);
}

}  // namespace
}  // namespace tlm::cli
