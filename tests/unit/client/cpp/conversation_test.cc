#include "client/cpp/conversation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/proto.h"

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

TEST(ConversationTest, KeepsCallsAndTheirResults) {
  Output output;
  output.text = "<think>Add.</think><call>...";
  output.reasoning = "Add.";
  output.content = "I add.";
  output.tool_calls = {{"id0", "add", "{\"b\": 1, \"a\": 2}", true}, {"id1", "look", "{", false}};
  Conversation conversation;
  conversation.AddUser("1 + 2?");
  conversation.AddAnswer(output);
  conversation.AddToolResult(output.tool_calls[0], "3");
  // The other call is not complete.
  EXPECT_THAT(conversation.ToInput(), HasFields(R"(
      messages { role: "user" content: "1 + 2?" }
      messages { role: "assistant" reasoning: "Add." content: "I add."
                 tool_calls { id: "id0" name: "add" arguments_json: '{"b": 1, "a": 2}' } }
      messages { role: "tool" tool_call_id: "id0" name: "add" content: "3" })"));
}

TEST(ConversationTest, ForgetsWhatIsBehind) {
  Conversation conversation;
  conversation.set_system("s");
  for (const char* text : {"a", "b", "c"}) conversation.AddUser(text);
  conversation.Truncate(4);
  EXPECT_EQ(conversation.messages().size(), 3u);
  conversation.Truncate(1);
  EXPECT_THAT(Said(conversation.ToInput()), ElementsAre(Pair("system", "s"), Pair("user", "a")));
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
