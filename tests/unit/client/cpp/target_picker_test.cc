#include "client/cpp/target_picker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <string>

#include "client/cpp/affinity.h"

namespace tlm::client {
namespace {

using testing::AllOf;
using testing::Each;
using testing::Ge;
using testing::Le;

const absl::Time kNow = absl::UnixEpoch();

std::vector<std::string> Names(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back("10.0.0." + std::to_string(i + 1) + ":50051");
  return names;
}

uint64_t Conversation(int number) { return HashOf("conversation " + std::to_string(number)); }

// Where each of `conversations` goes, by name.
std::vector<std::string> HomesOf(int conversations, const std::vector<std::string>& names) {
  TargetPicker picker(names);
  std::vector<std::string> homes;
  for (int i = 0; i < conversations; ++i) {
    homes.push_back(names[*picker.NextFor(Conversation(i), kNow)]);
  }
  return homes;
}

TEST(TargetPickerTest, TakesTurns) {
  TargetPicker picker(Names(3));
  for (const size_t expected : {0, 1, 2, 0}) EXPECT_EQ(picker.Next(kNow), expected);
}

TEST(TargetPickerTest, PassesOverWhatIsExcluded) {
  TargetPicker picker(Names(3));
  EXPECT_EQ(picker.Next(kNow, {0}), 1u);
  EXPECT_EQ(picker.Next(kNow, {2}), 0u);
  EXPECT_FALSE(picker.Next(kNow, {0, 1, 2}));
}

TEST(TargetPickerTest, AvoidsWhatFailedForASecond) {
  TargetPicker picker(Names(2));
  picker.MarkFailed(0, kNow);
  EXPECT_EQ(picker.Next(kNow), 1u);
  EXPECT_EQ(picker.Next(kNow + absl::Milliseconds(999)), 1u);
  EXPECT_EQ(picker.Next(kNow + absl::Seconds(1)), 0u);
}

TEST(TargetPickerTest, TakesWhatFailedWhereNothingElseIsLeft) {
  TargetPicker picker(Names(2));
  picker.MarkFailed(0, kNow);
  EXPECT_EQ(picker.Next(kNow, {1}), 0u);
  picker.MarkFailed(1, kNow);
  EXPECT_TRUE(picker.Next(kNow));
}

TEST(TargetPickerTest, ForgetsAFailureWhenTheTargetServes) {
  TargetPicker picker(Names(2));
  picker.MarkFailed(0, kNow);
  picker.MarkServing(0);
  EXPECT_EQ(picker.Next(kNow), 0u);
}

TEST(TargetPickerAffinityTest, SpreadsConversationsEvenly) {
  std::map<std::string, int> share;
  for (const std::string& home : HomesOf(4000, Names(4))) ++share[home];
  std::vector<int> counts;
  for (const auto& [name, count] : share) counts.push_back(count);
  // 1000 each, four standard deviations (27) to both sides.
  EXPECT_THAT(counts, AllOf(testing::SizeIs(4), Each(AllOf(Ge(890), Le(1110)))));
}

TEST(TargetPickerAffinityTest, DoesNotDependOnTheOrderOfTargets) {
  std::vector<std::string> names = Names(5);
  const std::vector<std::string> homes = HomesOf(200, names);
  std::reverse(names.begin(), names.end());
  EXPECT_EQ(HomesOf(200, names), homes);
}

TEST(TargetPickerAffinityTest, MovesOnlyTheConversationsOfATargetThatIsRemoved) {
  const std::vector<std::string> names = Names(4);
  const std::vector<std::string> fewer(names.begin(), names.end() - 1);
  const std::vector<std::string> before = HomesOf(4000, names);
  const std::vector<std::string> after = HomesOf(4000, fewer);
  std::map<std::string, int> moved_to;
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i] == names.back()) {
      ++moved_to[after[i]];
    } else {
      EXPECT_EQ(after[i], before[i]);
    }
  }
  // A quarter moved, in equal parts: 333 each, four standard deviations (17.5) to both sides.
  EXPECT_EQ(moved_to.size(), 3u);
  for (const auto& [name, count] : moved_to) EXPECT_THAT(count, AllOf(Ge(263), Le(403))) << name;
}

TEST(TargetPickerAffinityTest, MovesOnlyWhatATargetThatIsAddedGets) {
  const std::vector<std::string> names = Names(5);
  const std::vector<std::string> before = HomesOf(4000, Names(4));
  const std::vector<std::string> after = HomesOf(4000, names);
  int moved = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    if (after[i] == before[i]) continue;
    EXPECT_EQ(after[i], names.back());
    ++moved;
  }
  // A fifth, four standard deviations (25) to both sides.
  EXPECT_THAT(moved, AllOf(Ge(700), Le(900)));
}

TEST(TargetPickerAffinityTest, PassesOverFailedAndExcludedTargetsInAFixedOrder) {
  TargetPicker picker(Names(3));
  const size_t first = *picker.NextFor(Conversation(7), kNow);
  const size_t second = *picker.NextFor(Conversation(7), kNow, {first});
  EXPECT_NE(second, first);
  picker.MarkFailed(first, kNow);
  EXPECT_EQ(picker.NextFor(Conversation(7), kNow), second);
  EXPECT_EQ(picker.NextFor(Conversation(7), kNow + TargetPicker::kAvoidFor), first);
  EXPECT_FALSE(picker.NextFor(Conversation(7), kNow, {0, 1, 2}));
}

TEST(TargetPickerAffinityTest, KeepsAFewCallsTogetherWhateverTheOthersRun) {
  TargetPicker picker(Names(3));
  const size_t home = *picker.NextFor(Conversation(7), kNow);
  std::deque<TargetPicker::RunningCall> running;
  for (size_t i = 0; i < TargetPicker::kFreeCalls; ++i) {
    EXPECT_EQ(picker.NextFor(Conversation(7), kNow), home) << i;
    running.emplace_back(&picker, home);
  }
  EXPECT_NE(picker.NextFor(Conversation(7), kNow), home);
  running.pop_back();
  EXPECT_EQ(picker.NextFor(Conversation(7), kNow), home);
}

TEST(TargetPickerAffinityTest, BoundsTheLoadOfAPopularBeginning) {
  TargetPicker picker(Names(4));
  std::deque<TargetPicker::RunningCall> running;
  std::vector<int> counts(4);
  for (int i = 0; i < 400; ++i) {
    const size_t target = *picker.NextFor(Conversation(7), kNow);
    running.emplace_back(&picker, target);
    ++counts[target];
  }
  EXPECT_THAT(counts, Each(Le(125)));  // 5/4 of the average of 100
}

}  // namespace
}  // namespace tlm::client
