#include "client/cpp/affinity.h"

#include <gtest/gtest.h>

#include <string>

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

}  // namespace
}  // namespace tlm::client
