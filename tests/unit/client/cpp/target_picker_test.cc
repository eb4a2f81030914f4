#include "client/cpp/target_picker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>

#include "client/cpp/balance.h"
#include "client/cpp/conversation.h"

namespace tlm::client {
namespace {

v1::GenerateRequest WithPrompt(const std::string& prompt) {
  v1::GenerateRequest request;
  request.set_prompt(prompt);
  return request;
}

v1::GenerateRequest WithIds(uint32_t count, uint32_t last) {
  v1::GenerateRequest request;
  for (uint32_t i = 0; i + 1 < count; ++i) request.mutable_prompt_token_ids()->add_ids(i);
  request.mutable_prompt_token_ids()->add_ids(last);
  return request;
}

v1::GenerateRequest Of(const Conversation& conversation) {
  v1::GenerateRequest request;
  *request.mutable_chat() = conversation.ToInput();
  return request;
}

TEST(AffinityTest, HashesAsPublished) {
  // The author's test vectors.
  EXPECT_EQ(HashOf(""), 0xcbf29ce484222325u);
  EXPECT_EQ(HashOf("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(HashOf("foobar"), 0x85944171f73967e8u);
}

// A new version of the library must not send conversations elsewhere than the one before.
TEST(AffinityTest, NeverChanges) {
  EXPECT_EQ(AffinityOf(WithPrompt("Once upon a time"), ""), 0xc42306abd9a4128cu);
  EXPECT_EQ(AffinityOf({}, "session-1"), 0x1688595dcf49184du);
  EXPECT_EQ(RendezvousScore(1, HashOf("10.0.0.1:50051")), 0xb1f96c8b4192b35eu);
}

TEST(AffinityTest, PromptsThatBeginAlikeAgree) {
  const std::string beginning(256, 'x');
  const auto affinity = AffinityOf(WithPrompt(beginning), "");
  ASSERT_TRUE(affinity.has_value());
  EXPECT_EQ(AffinityOf(WithPrompt(beginning + "and so on"), ""), affinity);
  EXPECT_NE(AffinityOf(WithPrompt(beginning.substr(1) + "y"), ""), affinity);
}

TEST(AffinityTest, TokenIdsThatBeginAlikeAgree) {
  const auto affinity = AffinityOf(WithIds(64, 9), "");
  ASSERT_TRUE(affinity.has_value());
  EXPECT_NE(AffinityOf(WithIds(64, 10), ""), affinity);
  EXPECT_EQ(AffinityOf(WithIds(65, 9), ""), AffinityOf(WithIds(66, 8), ""));
}

TEST(AffinityTest, AllTurnsOfAConversationAgree) {
  Conversation conversation;
  conversation.set_system("You answer in one sentence.");
  conversation.AddUser("What is a transformer?");
  const auto affinity = AffinityOf(Of(conversation), "");
  ASSERT_TRUE(affinity.has_value());
  conversation.AddAssistant("A model.");
  conversation.AddUser("Of what?");
  EXPECT_EQ(AffinityOf(Of(conversation), ""), affinity);
}

TEST(AffinityTest, ConversationsWithOneSystemMessageDiffer) {
  Conversation one, other;
  for (Conversation* conversation : {&one, &other}) {
    conversation->set_system(std::string(1000, 's'));
  }
  one.AddUser("What is a transformer?");
  other.AddUser("What is a resistor?");
  EXPECT_NE(AffinityOf(Of(one), ""), AffinityOf(Of(other), ""));
}

TEST(AffinityTest, TheApplicationsKeyOutweighsTheRequest) {
  EXPECT_EQ(AffinityOf(WithPrompt("one"), "key"), AffinityOf(WithPrompt("other"), "key"));
  EXPECT_NE(AffinityOf(WithPrompt("one"), "key"), AffinityOf(WithPrompt("one"), "other key"));
}

TEST(AffinityTest, SaltedRequestsShareNothingWithOthers) {
  v1::GenerateRequest salted = WithPrompt("one");
  salted.mutable_cache()->set_cache_salt("salt");
  EXPECT_NE(AffinityOf(salted, ""), AffinityOf(WithPrompt("one"), ""));
}

TEST(AffinityTest, WhatUsesNoCacheHasNone) {
  v1::GenerateRequest request = WithPrompt("one");
  request.mutable_cache()->set_bypass_prefix_cache(true);
  EXPECT_FALSE(AffinityOf(request, "").has_value());
  EXPECT_TRUE(AffinityOf(request, "key").has_value());
  EXPECT_FALSE(AffinityOf({}, "").has_value());
}

TEST(BalanceTest, IsNamedAsItsConstants) {
  EXPECT_EQ(BalanceFromName("round_robin"), Balance::kRoundRobin);
  EXPECT_EQ(BalanceFromName("prefix_affinity"), Balance::kPrefixAffinity);
  EXPECT_FALSE(BalanceFromName("Round_Robin").has_value());
}

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
