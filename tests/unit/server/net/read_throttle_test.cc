#include "server/net/read_throttle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tlm {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr ReadBudget::Duration kNeitherFastNorSlow = milliseconds(10);
constexpr size_t kMax = ReadBudget::kMaxBytes;

class ReadBudgetTest : public testing::Test {
 protected:
  // Reads as much of it as it may be read; how much.
  size_t ReadAll(int descriptor) {
    size_t all = 0;
    while (const size_t now = budget_.Allowance(descriptor)) {
      budget_.NoteRead(descriptor, now);
      all += now;
    }
    return all;
  }
  std::vector<int> EndRound(ReadBudget::Duration round = kNeitherFastNorSlow) {
    return budget_.EndRound(
        round, most_bytes_, [this](int descriptor) { return descriptor == closed_; }, over_);
  }
  // As large as it gets.
  void Grow() {
    for (int i = 0; i < 10; ++i) EndRound(milliseconds(1));
  }

  std::map<int, uint64_t> cookies_;  // 0 by default
  ReadBudget budget_{[this](int descriptor) { return cookies_[descriptor]; }};
  size_t most_bytes_ = kMax;
  int closed_ = -1;
  std::vector<std::pair<int, uint64_t>> over_;
};

TEST_F(ReadBudgetTest, OthersThanConnectionsAreReadWithoutBounds) {
  EXPECT_EQ(budget_.Allowance(7), ReadBudget::kUnbounded);
}

TEST_F(ReadBudgetTest, AllConnectionsTogetherHaveOneBudget) {
  Grow();
  for (const int one : {3, 4}) budget_.Add(one, "peer");
  EXPECT_EQ(ReadAll(3), kMax);
  EXPECT_EQ(ReadAll(4), 0u);
  EXPECT_TRUE(budget_.AwaitWaiting(milliseconds(0)));
}

TEST_F(ReadBudgetTest, AWaitingConnectionHasAShareOfTheNextRound) {
  Grow();
  for (const int one : {3, 4, 5}) budget_.Add(one, "peer");
  ReadAll(3);
  ReadAll(4);
  EXPECT_THAT(EndRound(), ElementsAre(3, 4));
  EXPECT_EQ(ReadAll(3), kMax / 2);
  EXPECT_EQ(ReadAll(5), kMax / 2);  // of no reserved share
  EXPECT_EQ(ReadAll(4), kMax / 2);
}

TEST_F(ReadBudgetTest, AWaitingConnectionIsNotReadBeforeItsTurn) {
  budget_.Add(3, "peer");
  ReadAll(3);
  EXPECT_EQ(budget_.Allowance(3), 0u);
  EXPECT_THAT(EndRound(), ElementsAre(3));
  EXPECT_GT(budget_.Allowance(3), 0u);
}

TEST_F(ReadBudgetTest, SlowRoundsShrinkTheBudgetAndFastOnesLetItGrow) {
  budget_.Add(3, "peer");
  for (int i = 0; i < 10; ++i) EndRound(milliseconds(100));
  EXPECT_EQ(ReadAll(3), ReadBudget::kMinBytes);
  EndRound(milliseconds(1));
  EXPECT_EQ(ReadAll(3), 2 * ReadBudget::kMinBytes);
  Grow();
  EXPECT_EQ(ReadAll(3), kMax);
}

TEST_F(ReadBudgetTest, ARoundCanBeBoundedButNotToNothing) {
  Grow();
  budget_.Add(3, "peer");
  most_bytes_ = 2 * ReadBudget::kMinBytes;
  EndRound();
  EXPECT_EQ(ReadAll(3), most_bytes_);
  most_bytes_ = 0;
  EndRound();
  EXPECT_EQ(ReadAll(3), ReadBudget::kMinBytes);
  most_bytes_ = kMax;
  EndRound();
  EXPECT_EQ(ReadAll(3), kMax);
}

TEST_F(ReadBudgetTest, PeersTakeTurnsHoweverManyConnectionsTheyHave) {
  for (int i = 0; i < 10; ++i) EndRound(milliseconds(100));
  constexpr int kMany = 1000;
  budget_.Add(1, "A");
  ReadAll(1);
  for (int one = 2; one <= kMany; ++one) {
    budget_.Add(one, "A");
    ReadAll(one);
  }
  budget_.Add(kMany + 1, "B");
  ReadAll(kMany + 1);
  const std::vector<int> next = EndRound();
  EXPECT_EQ(next.size(), ReadBudget::kMinBytes / ReadBudget::kMinShare);
  EXPECT_THAT(next, testing::Contains(kMany + 1));
}

TEST_F(ReadBudgetTest, EveryConnectionOfAPeerGetsItsTurn) {
  for (int i = 0; i < 10; ++i) EndRound(milliseconds(100));
  std::vector<bool> had_turn(101);
  for (int one = 0; one <= 100; ++one) {
    budget_.Add(one, "peer");
    ReadAll(one);
  }
  for (int round = 0; round < 10; ++round) {
    for (const int one : EndRound()) {
      had_turn[static_cast<size_t>(one)] = true;
      ReadAll(one);
    }
  }
  EXPECT_THAT(had_turn, testing::Each(true));
}

TEST_F(ReadBudgetTest, ConnectionsThatAreOverTakeNoTurn) {
  cookies_[3] = 33;
  for (const int one : {3, 4}) budget_.Add(one, "peer");
  ReadAll(3);
  ReadAll(4);
  closed_ = 3;
  EXPECT_THAT(EndRound(), ElementsAre(4));
  EXPECT_THAT(over_, ElementsAre(testing::Pair(3, 33)));
  EXPECT_EQ(budget_.Allowance(3), ReadBudget::kEnded);
}

TEST_F(ReadBudgetTest, NothingIsReadOfAConnectionThatWasCut) {
  cookies_[3] = 33;
  budget_.Add(3, "peer");
  ReadAll(3);
  budget_.Cut(3, 33);
  EXPECT_EQ(budget_.Allowance(3), ReadBudget::kEnded);
  EXPECT_FALSE(budget_.AwaitWaiting(milliseconds(0)));
  EXPECT_THAT(EndRound(), IsEmpty());
}

TEST_F(ReadBudgetTest, CuttingAConnectionLeavesTheNextOneWithItsDescriptorBounded) {
  Grow();
  cookies_[3] = 34;
  budget_.Add(3, "peer");
  budget_.Cut(3, 33);
  EXPECT_EQ(ReadAll(3), kMax);
  EXPECT_EQ(budget_.Allowance(3), 0u);
}

TEST_F(ReadBudgetTest, WhatIsNoConnectionMayHaveTheDescriptorOfOneThatWasCut) {
  cookies_[3] = 33;
  budget_.Add(3, "peer");
  budget_.Cut(3, 33);
  cookies_[3] = 35;
  EXPECT_EQ(budget_.Allowance(3), ReadBudget::kUnbounded);
}

TEST_F(ReadBudgetTest, CountsConnectionsThatWereNotReadYet) {
  for (const int one : {3, 4, 5}) budget_.Add(one, "peer");
  budget_.Add(3, "other");
  EXPECT_EQ(budget_.Unread(), 3u);
  for (int i = 0; i < 2; ++i) budget_.Allowance(3);
  EXPECT_EQ(budget_.Unread(), 2u);
  budget_.Cut(4, 0);
  EXPECT_EQ(budget_.Unread(), 1u);
}

TEST_F(ReadBudgetTest, ADescriptorThatIsUsedAgainIsAnotherConnection) {
  budget_.Add(3, "peer");
  ReadAll(3);
  budget_.Add(3, "other");
  EXPECT_FALSE(budget_.AwaitWaiting(milliseconds(0)));
  EXPECT_EQ(budget_.Allowance(3), 0u);  // the round's budget is used up
  EXPECT_THAT(EndRound(), ElementsAre(3));
}

}  // namespace
}  // namespace tlm
