#include "client/cpp/conversation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tlm::client {
namespace {

using testing::ElementsAre;
using testing::Pair;

std::vector<std::pair<std::string, std::string>> Said(const v1::ChatInput& input) {
  std::vector<std::pair<std::string, std::string>> said;
  for (const auto& message : input.messages()) said.emplace_back(message.role(), message.content());
  return said;
}

TEST(ConversationTest, SendsSystemMessageFirst) {
  Conversation conversation;
  conversation.AddUser("hi");
  conversation.AddAssistant("hello");
  conversation.set_system("be brief");
  EXPECT_THAT(
      Said(conversation.ToInput()),
      ElementsAre(Pair("system", "be brief"), Pair("user", "hi"), Pair("assistant", "hello")));
  conversation.set_system("");
  EXPECT_THAT(Said(conversation.ToInput()),
              ElementsAre(Pair("user", "hi"), Pair("assistant", "hello")));
}

TEST(ConversationTest, TakesMessagesBack) {
  Conversation conversation;
  conversation.set_system("s");
  conversation.AddUser("a");
  conversation.AddUser("b");
  conversation.DropLast();
  EXPECT_THAT(Said(conversation.ToInput()), ElementsAre(Pair("system", "s"), Pair("user", "a")));
  conversation.DropLast();
  conversation.DropLast();
  EXPECT_THAT(Said(conversation.ToInput()), ElementsAre(Pair("system", "s")));
}

TEST(ConversationTest, KeepsSystemMessageOverReset) {
  Conversation conversation;
  conversation.set_system("s");
  conversation.AddUser("a");
  conversation.Reset();
  EXPECT_TRUE(conversation.messages().empty());
  EXPECT_EQ(conversation.system(), "s");
}

}  // namespace
}  // namespace tlm::client
