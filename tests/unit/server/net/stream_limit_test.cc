#include "server/net/stream_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/net/connection_watch.h"
#include "tests/unit/server/net/tcp_pair.h"

namespace tlm {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr int64_t kMax = StreamLimit::kMaxStreams;
constexpr int64_t kPerConnection = 1 << 20;
// Read once, it could be of as many streams as all connections may have, and of one more.
constexpr size_t kManyBytes = (kMax + 1) * StreamLimit::kMinBytes;

class FakeCounter final : public StreamCounter {
 public:
  explicit FakeCounter(std::map<std::string, StreamCounts>* counts) : counts_(counts) {}

  std::optional<int64_t> Find(const std::string& peer) override {
    if (!counts_->contains(peer)) return std::nullopt;
    peers_.push_back(peer);
    return std::ssize(peers_) - 1;
  }
  std::optional<StreamCounts> Count(int64_t id) override {
    const auto counts = counts_->find(peers_[static_cast<size_t>(id)]);
    return counts == counts_->end() ? std::nullopt : std::optional(counts->second);
  }

 private:
  std::map<std::string, StreamCounts>* const counts_;
  std::vector<std::string> peers_;  // by id
};

class StreamLimitTest : public testing::Test {
 protected:
  void Add(const TcpPair& pair, int64_t max_streams = kPerConnection) {
    limit_.Add(pair.server, max_streams);
  }
  StreamCounts& Counts(const TcpPair& pair) { return counts_[PeerOf(pair.server).Name()]; }
  std::vector<int> Enforce() {
    std::vector<int> cut;
    for (const auto& [descriptor, cookie] : limit_.Enforce()) {
      EXPECT_EQ(cookie, SocketCookie(descriptor));
      cut.push_back(descriptor);
    }
    return cut;
  }

  std::map<std::string, StreamCounts> counts_;
  StreamLimit limit_{std::make_unique<FakeCounter>(&counts_)};
  TcpPair a_, b_, c_;
};

TEST_F(StreamLimitTest, CountsNothingBeforeThereCanBeTooMany) {
  Add(a_);
  Counts(a_).open = Counts(a_).started = 2 * kMax;
  limit_.NoteRead(a_.server, kManyBytes / 2);
  EXPECT_THAT(Enforce(), IsEmpty());
  limit_.NoteRead(a_.server, kManyBytes / 2 + StreamLimit::kMinBytes);
  EXPECT_THAT(Enforce(), ElementsAre(a_.server));
}

TEST_F(StreamLimitTest, BytesThatWereMessagesDoNoHarm) {
  Add(a_);
  Counts(a_) = {.open = 3, .started = 1000, .messages = 1000};
  for (int i = 0; i < 100; ++i) {
    limit_.NoteRead(a_.server, kManyBytes);
    EXPECT_THAT(Enforce(), IsEmpty());
    EXPECT_EQ(limit_.RoomBytes(), static_cast<size_t>((kMax - 3) * StreamLimit::kMinBytes));
    Counts(a_).messages = Counts(a_).started += 1;
  }
}

TEST_F(StreamLimitTest, CutsAConnectionThatSendsMuchWithoutCalls) {
  Add(a_);
  Counts(a_) = {.open = 1, .started = 10, .messages = 10};
  size_t read = 0;
  std::vector<int> cut;
  while (cut.empty() && read <= 2 * StreamLimit::kMaxIdleBytes) {
    limit_.NoteRead(a_.server, kManyBytes);
    read += kManyBytes;
    cut = Enforce();
  }
  EXPECT_THAT(cut, ElementsAre(a_.server));
  EXPECT_GT(read, static_cast<size_t>(StreamLimit::kMaxIdleBytes));
}

TEST_F(StreamLimitTest, CutsCallsWithoutMessageFirst) {
  for (const TcpPair* pair : {&a_, &b_, &c_}) Add(*pair);
  Counts(a_) = {.open = kMax / 2, .started = kMax, .messages = kMax};
  Counts(b_) = {.open = kMax / 2, .started = kMax, .messages = 0};
  Counts(c_) = {.open = 10, .started = 10, .messages = 10};
  for (const TcpPair* pair : {&a_, &b_, &c_}) limit_.NoteRead(pair->server, kManyBytes);
  EXPECT_THAT(Enforce(), ElementsAre(b_.server));
  EXPECT_THAT(Enforce(), IsEmpty());
}

TEST_F(StreamLimitTest, CutsAConnectionThatDoesNotKeepToItsLimit) {
  for (const TcpPair* pair : {&a_, &b_}) Add(*pair, 100);
  Counts(a_).open = Counts(a_).started = 100 + StreamLimit::kSpareStreams + 1;
  Counts(b_).open = Counts(b_).started = 100;
  for (const TcpPair* pair : {&a_, &b_}) limit_.NoteRead(pair->server, kManyBytes);
  EXPECT_THAT(Enforce(), ElementsAre(a_.server));
}

TEST_F(StreamLimitTest, HasNoRoomUntilTheStreamsOfCutConnectionsHaveEnded) {
  Add(a_);
  Counts(a_).open = Counts(a_).started = kMax + 1;
  limit_.NoteRead(a_.server, kManyBytes);
  EXPECT_THAT(Enforce(), ElementsAre(a_.server));
  EXPECT_EQ(limit_.RoomBytes(), 0u);
  Counts(a_).open = kMax - 1;
  EXPECT_EQ(limit_.RoomBytes(), static_cast<size_t>(StreamLimit::kMinBytes));
  counts_.clear();
  EXPECT_EQ(limit_.RoomBytes(), static_cast<size_t>(kMax * StreamLimit::kMinBytes));
}

TEST_F(StreamLimitTest, CutsAConnectionThatTheClientClosed) {
  for (const TcpPair* pair : {&a_, &b_}) Add(*pair);
  a_.CloseClient();
  for (const TcpPair* pair : {&a_, &b_}) {
    Counts(*pair).open = 10;
    limit_.NoteRead(pair->server, kManyBytes);
  }
  EXPECT_THAT(Enforce(), ElementsAre(a_.server));
}

}  // namespace
}  // namespace tlm
