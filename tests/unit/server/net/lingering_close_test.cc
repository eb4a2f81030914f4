#include "server/net/lingering_close.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>

#include "tests/unit/server/net/tcp_pair.h"

namespace tlm {
namespace {

// A connection as gRPC has it: in an epoll set, and closed by shutdown() and close().
class LingeringCloseTest : public ::testing::Test {
 protected:
  LingeringCloseTest() {
    epoll_event event{};
    EXPECT_EQ(epoll_ctl(set_, EPOLL_CTL_ADD, pair_.server, &event), 0);
  }
  ~LingeringCloseTest() override { close(set_); }

  void Watch() {
    closer_.Add(pair_.server);
    closer_.NoteWatched(set_, pair_.server);
  }

  const int set_ = epoll_create1(EPOLL_CLOEXEC);
  TcpPair pair_;
  LingeringClose closer_;
};

TEST_F(LingeringCloseTest, TheClientMayWriteAndStillReadsAllThatWasSent) {
  Watch();
  ASSERT_EQ(send(pair_.server, "trailers", 8, 0), 8);
  ASSERT_TRUE(closer_.Begin(pair_.server));
  pair_.CloseServer();
  // Two writes: the first one to a closed socket succeeds, too.
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(send(pair_.client(), "update", 6, MSG_NOSIGNAL), 6) << errno;
  }
  char text[16];
  EXPECT_EQ(recv(pair_.client(), text, 8, MSG_WAITALL), 8);
  EXPECT_EQ(std::string(text, 8), "trailers");
  EXPECT_EQ(recv(pair_.client(), text, sizeof(text), 0), 0);
}

TEST_F(LingeringCloseTest, EndsWithTheClientOrItsBytesOrItsTime) {
  enum class Cause { kClient, kBytes, kTime };
  for (const Cause cause : {Cause::kClient, Cause::kBytes, Cause::kTime}) {
    SCOPED_TRACE(static_cast<int>(cause));
    using std::chrono::milliseconds;
    LingeringClose closer(cause == Cause::kTime ? milliseconds(10) : std::chrono::hours(1));
    TcpPair pair;
    epoll_event event{};
    ASSERT_EQ(epoll_ctl(set_, EPOLL_CTL_ADD, pair.server, &event), 0);
    closer.Add(pair.server);
    closer.NoteWatched(set_, pair.server);
    ASSERT_TRUE(closer.Begin(pair.server));
    pair.CloseServer();
    if (cause == Cause::kClient) pair.CloseClient();
    const std::string data(size_t{4} << 10, 'x');
    while (cause == Cause::kBytes &&
           send(pair.client(), data.data(), data.size(), MSG_NOSIGNAL) > 0) {
    }
    closer.AwaitAll();  // for an hour if the socket stays
  }
}

TEST_F(LingeringCloseTest, TheEpollSetForgetsTheSocket) {
  Watch();
  ASSERT_TRUE(closer_.Begin(pair_.server));
  pair_.CloseServer();
  ASSERT_EQ(send(pair_.client(), "update", 6, MSG_NOSIGNAL), 6);
  epoll_event event{};
  EXPECT_EQ(epoll_wait(set_, &event, 1, 0), 0);
}

TEST_F(LingeringCloseTest, LeavesOtherSocketsAlone) {
  EXPECT_FALSE(closer_.Begin(pair_.server)) << "not added";
  closer_.Add(pair_.server);
  EXPECT_FALSE(closer_.Begin(pair_.server)) << "not watched";
  Watch();
  pair_.CloseClient();
  EXPECT_FALSE(closer_.Begin(pair_.server)) << "closed by the client";
  EXPECT_EQ(send(pair_.server, "x", 1, MSG_NOSIGNAL), 1) << "nothing was done";
}

}  // namespace
}  // namespace tlm
