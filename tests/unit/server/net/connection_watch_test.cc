#include "server/net/connection_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "tests/unit/server/net/tcp_pair.h"

namespace tlm {
namespace {

constexpr uint64_t kFloodBytes = FloodDetector::kFloodBytes;
constexpr int kPolls = FloodDetector::kPolls;
constexpr int64_t kLong = FloodDetector::kContinuousNs;

TEST(FloodDetectorTest, InputWithoutPauseAndWithoutAnswerIsAFlood) {
  FloodDetector detector;
  for (int poll = 0; poll < kPolls; ++poll) {
    EXPECT_FALSE(detector.IsFlood({1000 + poll * kFloodBytes, 52}, poll * kLong / kPolls));
  }
  EXPECT_TRUE(detector.IsFlood({1000 + kPolls * kFloodBytes, 52}, kLong));
}

TEST(FloodDetectorTest, AnAnswerNowAndThenIsEnough) {
  FloodDetector detector;
  for (uint64_t i = 0; i < 100; ++i) {
    EXPECT_FALSE(detector.IsFlood({i * kFloodBytes, i / 2}, static_cast<int64_t>(i) * kLong / 2));
  }
}

TEST(FloodDetectorTest, AnUploadThatIsAnsweredLateIsNoFlood) {
  FloodDetector detector;
  EXPECT_FALSE(detector.IsFlood({0, 52}, 0));
  for (int i = 1; i < 100; ++i) EXPECT_FALSE(detector.IsFlood({32 * kFloodBytes, 52}, i * kLong));
}

TEST(FloodDetectorTest, LittleInputIsNoFlood) {
  FloodDetector detector;
  for (uint64_t i = 0; i < 100; ++i) {
    EXPECT_FALSE(detector.IsFlood({i, 52}, static_cast<int64_t>(i) * kLong));
  }
}

TEST(FloodDetectorTest, InputWithPausesAndWithoutAnswerIsAFloodLater) {
  constexpr int64_t kPause = kLong / 2;
  FloodDetector detector;
  uint64_t read = 0;
  int64_t now = 0;
  EXPECT_FALSE(detector.IsFlood({read, 52}, now));
  bool cut = false;
  while (!cut && now < 10 * FloodDetector::kIntermittentNs) {
    cut = detector.IsFlood({read += kFloodBytes, 52}, now += kPause) ||
          detector.IsFlood({read, 52}, now += kPause);
  }
  EXPECT_TRUE(cut);
  EXPECT_GE(now, FloodDetector::kIntermittentNs);
  EXPECT_LE(now, FloodDetector::kIntermittentNs + 2 * kPause);
}

TEST(FloodDetectorTest, AnAnswerNowAndThenExcusesPauses) {
  FloodDetector detector;
  for (uint64_t i = 0; i < 100; ++i) {
    const int64_t now = static_cast<int64_t>(i) * kLong;
    EXPECT_FALSE(detector.IsFlood({i * kFloodBytes, 52 + i / 4}, now));
    EXPECT_FALSE(detector.IsFlood({i * kFloodBytes, 52 + i / 4}, now + kLong / 2));
  }
}

TEST(PeerTest, IsNamedByAddressAndPort) {
  const TcpPair pair;
  EXPECT_THAT(PeerOf(pair.server).Name(), testing::MatchesRegex("127\\.0\\.0\\.1:[0-9]+"));
  EXPECT_EQ(PeerOf(-1).Name(), "");
  const std::string loopback = std::string(15, '\0') + '\1';
  EXPECT_EQ((Peer{.address = loopback, .port = 80}).Name(), "[::1]:80");
}

TEST(PeerTest, OfIpv6TheNetworkIsASubscriber) {
  const Peer one{.address = "networksANYBODY1", .port = 1};
  const Peer other{.address = "networksSOMEONE2", .port = 2};
  EXPECT_EQ(one.Network(), "networks");
  EXPECT_EQ(one.Network(), other.Network());
  EXPECT_EQ((Peer{.address = "ipv4", .port = 1}).Network(), "ipv4");
}

TEST(ConnectionWatchTest, CutsFloodsAndNoOtherConnection) {
  TcpPair quiet;
  TcpPair answered;
  TcpPair flood;
  ConnectionWatch watch;
  for (const TcpPair* pair : {&quiet, &answered, &flood}) watch.Add(pair->server);
  for (int poll = 0; poll < kPolls; ++poll) {
    EXPECT_EQ(watch.CutFloods(poll * kLong / kPolls), 0);
    flood.Send(kFloodBytes);
    answered.Send(kFloodBytes);
    EXPECT_EQ(send(answered.server, "!", 1, 0), 1);
  }
  EXPECT_EQ(watch.CutFloods(kLong), 1);
  EXPECT_TRUE(flood.IsCut());
  EXPECT_FALSE(quiet.IsCut());
  EXPECT_FALSE(answered.IsCut());
}

TEST(ConnectionWatchTest, ForgetsWhatWasClosed) {
  ConnectionWatch watch;
  EXPECT_TRUE(watch.empty());
  {
    TcpPair pair;
    watch.Add(pair.server);
    watch.Add(-1);
    EXPECT_FALSE(watch.empty());
  }
  EXPECT_EQ(watch.CutFloods(0), 0);
  EXPECT_TRUE(watch.empty());
}

}  // namespace
}  // namespace tlm
