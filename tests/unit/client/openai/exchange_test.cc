// An exchange passes answers on, holds a fast writer back, and lets it go when the client is gone.
#include "client/openai/http/exchange.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace tlm::openai {
namespace {

// Counts the suspensions and resumptions of a connection.
struct Connection {
  int suspended = 0;
  int resumed = 0;
  Exchange exchange{HttpRequest{}, [this] { ++resumed; }};

  std::function<void()> Suspend() {
    return [this] { ++suspended; };
  }
  std::string Read(size_t size, long* count) {
    std::string out(size, '\0');
    *count = exchange.Read(out.data(), size, Suspend());
    out.resize(*count > 0 ? static_cast<size_t>(*count) : 0);
    return out;
  }
};

TEST(ExchangeTest, AConnectionSleepsUntilTheAnswerIsThere) {
  Connection connection;
  EXPECT_FALSE(connection.exchange.HeadOrSuspend(connection.Suspend()).has_value());
  EXPECT_EQ(connection.suspended, 1);
  connection.exchange.Respond({.status = 404}, "body");
  EXPECT_EQ(connection.resumed, 1);
  EXPECT_EQ(connection.exchange.HeadOrSuspend(connection.Suspend())->status, 404);
  EXPECT_EQ(connection.exchange.TakeBody(), "body");
  EXPECT_EQ(connection.suspended, 1);
}

TEST(ExchangeTest, AStreamIsReadInOrderAndSleepsInBetween) {
  Connection connection;
  connection.exchange.BeginStream({});
  EXPECT_TRUE(connection.exchange.Write("abc"));
  EXPECT_EQ(connection.resumed, 0);  // it was not suspended
  long count = 0;
  EXPECT_EQ(connection.Read(2, &count), "ab");
  EXPECT_EQ(connection.Read(2, &count), "c");
  connection.Read(2, &count);
  EXPECT_EQ(count, 0);
  EXPECT_EQ(connection.suspended, 1);
  EXPECT_TRUE(connection.exchange.Write("d"));
  EXPECT_EQ(connection.resumed, 1);
  connection.exchange.End();
  EXPECT_EQ(connection.Read(2, &count), "d");
  connection.Read(2, &count);
  EXPECT_EQ(count, -1);
}

TEST(ExchangeTest, TheBufferOfASlowReaderIsBounded) {
  Connection connection;
  connection.exchange.BeginStream({});
  constexpr size_t kBlock = 64 << 10;
  constexpr size_t kBlocks = 64;
  std::atomic<size_t> written{0};
  std::thread writer([&] {
    for (size_t i = 0; i < kBlocks; ++i) {
      ASSERT_TRUE(connection.exchange.Write(std::string(kBlock, static_cast<char>('a' + i % 26))));
      ++written;
    }
    connection.exchange.End();
  });
  size_t read = 0;
  for (long count = 0; count >= 0;) {
    const std::string part = connection.Read(1000, &count);
    for (const char c : part) {
      ASSERT_EQ(c, static_cast<char>('a' + (read / kBlock) % 26));
      ++read;
    }
    // One block may be on its way, and one more may exceed the limit.
    ASSERT_LE(written * kBlock, read + Exchange::kMaxBuffered + 2 * kBlock);
  }
  writer.join();
  EXPECT_EQ(read, kBlock * kBlocks);
}

TEST(ExchangeTest, AWriterIsReleasedWhenTheClientIsGone) {
  Connection connection;
  connection.exchange.BeginStream({});
  ASSERT_TRUE(connection.exchange.Write(std::string(Exchange::kMaxBuffered, 'x')));
  bool written = true;
  std::thread writer([&] { written = connection.exchange.Write("y"); });
  connection.exchange.OnGone();
  writer.join();
  EXPECT_FALSE(written);
  EXPECT_TRUE(connection.exchange.gone());
}

}  // namespace
}  // namespace tlm::openai
