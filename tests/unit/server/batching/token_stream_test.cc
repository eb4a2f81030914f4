#include "server/batching/token_stream.h"

#include <gtest/gtest.h>

namespace tlm {
namespace {

SampledToken Token(int32_t id) {
  SampledToken token;
  token.id = id;
  return token;
}

class CountingWaker : public StreamWaker {
 public:
  void Wake() override { ++wakes; }
  int wakes = 0;
};

TokenStream Unheard(int64_t capacity = TokenStream::kUnbounded) {
  return TokenStream({}, capacity);
}

TEST(TokenStreamTest, TakeGivesEverythingOnceAndInOrder) {
  TokenStream stream = Unheard();
  stream.PushStart({.queue_time = absl::Seconds(3)});
  stream.PushToken(Token(5));
  stream.PushToken(Token(6));
  stream.PushRow({.position = 9, .logits = {1.0f}});
  stream.PushScored({.index = 1, .token = Token(7)});
  stream.PushScored({.index = 2, .token = Token(8)});
  StreamEnd end;
  end.matched_token = 6;
  stream.PushEnd(end);

  const TokenStream::Pending pending = stream.Take();
  ASSERT_TRUE(pending.start.has_value());
  EXPECT_EQ(pending.start->queue_time, absl::Seconds(3));
  ASSERT_EQ(pending.tokens.size(), 2);
  EXPECT_EQ(pending.tokens[0].id, 5);
  EXPECT_EQ(pending.tokens[1].id, 6);
  ASSERT_EQ(pending.rows.size(), 1);
  EXPECT_EQ(pending.rows[0].position, 9);
  ASSERT_EQ(pending.scored.size(), 2);
  EXPECT_EQ(pending.scored[0].index, 1);
  EXPECT_EQ(pending.scored[1].token.id, 8);
  ASSERT_TRUE(pending.end.has_value());
  EXPECT_EQ(pending.end->matched_token, 6);

  const TokenStream::Pending nothing = stream.Take();
  EXPECT_FALSE(nothing.start.has_value());
  EXPECT_TRUE(nothing.tokens.empty());
  EXPECT_TRUE(nothing.rows.empty());
  EXPECT_TRUE(nothing.scored.empty());
  EXPECT_FALSE(nothing.end.has_value());
}

TEST(TokenStreamTest, RoomShrinksWithEveryResultAndComesBackWithTake) {
  TokenStream stream = Unheard(3);
  EXPECT_EQ(stream.Room(), 3);
  stream.PushRow({});
  EXPECT_EQ(stream.Room(), 2);
  stream.PushToken({});
  EXPECT_EQ(stream.Room(), 1);
  stream.PushScored({});
  EXPECT_EQ(stream.Room(), 0);
  stream.Take();
  EXPECT_EQ(stream.Room(), 3);
}

TEST(TokenStreamTest, StartAndEndTakeNoRoom) {
  TokenStream stream = Unheard(1);
  stream.PushStart({});
  EXPECT_EQ(stream.Room(), 1);
  stream.PushToken({});
  stream.PushEnd({});
  const TokenStream::Pending pending = stream.Take();
  EXPECT_TRUE(pending.start.has_value());
  EXPECT_EQ(pending.tokens.size(), 1);
  EXPECT_TRUE(pending.end.has_value());
}

TEST(TokenStreamTest, TakeWakesOnlyWhenItWasFull) {
  const auto waker = std::make_shared<CountingWaker>();
  TokenStream stream = Unheard(2);
  stream.SetWaker(waker);
  stream.PushToken({});
  stream.Take();
  EXPECT_EQ(waker->wakes, 0);
  stream.PushToken({});
  stream.PushRow({});
  stream.Take();
  EXPECT_EQ(waker->wakes, 1);
  stream.Take();
  EXPECT_EQ(waker->wakes, 1);
}

TEST(TokenStreamTest, AnUnboundedOneNeverWakes) {
  const auto waker = std::make_shared<CountingWaker>();
  TokenStream stream = Unheard();
  stream.SetWaker(waker);
  for (int i = 0; i < 1000; ++i) stream.PushToken(Token(i));
  EXPECT_GT(stream.Room(), 1 << 30);
  stream.Take();
  EXPECT_EQ(waker->wakes, 0);
}

TEST(TokenStreamTest, DetachWakesOnce) {
  const auto waker = std::make_shared<CountingWaker>();
  TokenStream stream = Unheard();
  stream.SetWaker(waker);
  EXPECT_FALSE(stream.detached());
  stream.Detach();
  stream.Detach();
  EXPECT_TRUE(stream.detached());
  EXPECT_EQ(waker->wakes, 1);
}

TEST(TokenStreamTest, OutlivesItsWakerAndItsListener) {
  auto waker = std::make_shared<CountingWaker>();
  TokenStream stream = Unheard(1);
  stream.SetWaker(waker);
  waker.reset();
  stream.PushRow({});
  stream.Take();
  stream.Detach();
  EXPECT_EQ(stream.listener(), nullptr);
}

TEST(TokenStreamDeathTest, NothingIsPushedIntoAFullOne) {
  TokenStream stream = Unheard(1);
  stream.PushToken({});
  EXPECT_DEATH(stream.PushToken({}), "Room");
  EXPECT_DEATH(stream.PushRow({}), "Room");
  EXPECT_DEATH(stream.PushScored({}), "Room");
}

TEST(TokenStreamDeathTest, NothingFollowsTheEnd) {
  TokenStream stream = Unheard();
  stream.PushEnd({});
  EXPECT_DEATH(stream.PushToken({}), "ended_");
  EXPECT_DEATH(stream.PushScored({}), "ended_");
  EXPECT_DEATH(stream.PushEnd({}), "ended_");
}

}  // namespace
}  // namespace tlm
