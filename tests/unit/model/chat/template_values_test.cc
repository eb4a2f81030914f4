// What a template sees of a conversation, and which JSON is refused.
#include "model/chat/template_values.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/chat/chat_template.h"

namespace tlm {
namespace {

// Prints all that it sees, calls as objects.
constexpr char kAll[] = "{{ messages }} {{ tools }}";

absl::StatusOr<std::string> Render(const Conversation& conversation,
                                   std::string_view source = kAll) {
  const auto chat = ChatTemplate::Parse(source, nlohmann::json::object());
  if (!chat.ok()) return chat.status();
  return (*chat)->Render(conversation, nlohmann::json());
}

std::string MessageRefusal(const ChatMessage& message) {
  const std::vector<ChatMessage> messages = {{"user", "a"}, message};
  const absl::Status status = Render({.messages = messages}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

std::string ToolRefusal(const ChatTool& tool) {
  const std::vector<ChatTool> tools = {{"first", "", "{}"}, tool};
  const absl::Status status = Render({.messages = {}, .tools = tools}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(TemplateValuesTest, LeavesOutWhatAMessageDoesNotHave) {
  const std::vector<ChatMessage> messages = {{"user", ""}};
  EXPECT_EQ(*Render({.messages = messages}), "[{'role': 'user', 'content': ''}] None");
}

TEST(TemplateValuesTest, HasTheKeysInOpenAiOrder) {
  const std::vector<ChatMessage> messages = {
      {.role = "assistant",
       .content = "I look.",
       .reasoning = "Hm.",
       .tool_calls = {{"id1", "add", R"({"b": 1, "a": [true, null]})"}, {"", "stop", "{}"}}},
      {.role = "tool", .content = "3", .tool_call_id = "id1", .name = "add"}};
  EXPECT_EQ(*Render({.messages = messages}, "{{ messages|tojson }}"),
            R"([{"thinking": "Hm.", "role": "assistant", "content": "I look.", )"
            R"("reasoning_content": "Hm.", "reasoning": "Hm.", "tool_calls": )"
            R"([{"type": "function", "id": "id1", "function": {"name": "add", "arguments": )"
            R"({"b": 1, "a": [true, null]}}}, )"
            R"({"type": "function", "function": {"name": "stop", "arguments": {}}}]}, )"
            R"({"role": "tool", "content": "3", "tool_call_id": "id1", "name": "add"}])");
}

TEST(TemplateValuesTest, ShowsNoEmptyContentBesideCalls) {
  const std::vector<ChatMessage> messages = {
      {.role = "assistant", .content = "", .tool_calls = {{"", "stop", "{}"}}}};
  constexpr char kCalls[] =
      "{% for c in messages[0].tool_calls %}{{ c.function|tojson }}{% endfor %}";
  EXPECT_EQ(*Render({.messages = messages},
                    std::string("{{ messages[0].content is defined }} ") + kCalls),
            R"(False {"name": "stop", "arguments": {}})");
  // A template that fails without it gets an empty one.
  EXPECT_EQ(*Render({.messages = messages},
                    "{% for m in messages %}{{ '<' + m.content + '>' }}{% for c in m.tool_calls %}"
                    "{{ c.function|tojson }}{% endfor %}{% endfor %}"),
            R"(<>{"name": "stop", "arguments": {}})");
}

TEST(TemplateValuesTest, HasToolsInOpenAiOrder) {
  const std::vector<ChatTool> tools = {
      {"add", "Adds.", R"({"required": ["b"], "properties": {"b": {}, "a": {"type": "integer"}}})"},
      {"stop", "", ""}};
  EXPECT_EQ(
      *Render({.messages = {}, .tools = tools}, "{{ tools|tojson }}"),
      R"([{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": )"
      R"({"required": ["b"], "properties": {"b": {}, "a": {"type": "integer"}}}}}, )"
      R"({"type": "function", "function": {"name": "stop"}}])");
}

TEST(TemplateValuesTest, NamesThePlaceOfWhatIsNotAnObject) {
  const auto with_arguments = [](const std::string& json) {
    return ChatMessage{
        .role = "assistant", .content = "", .tool_calls = {{"", "a", "{}"}, {"", "b", json}}};
  };
  EXPECT_EQ(MessageRefusal(with_arguments("{\"a\": \n 1,}")),
            "messages[1].tool_calls[1].arguments_json: is not valid JSON at line 2, column 4");
  EXPECT_EQ(MessageRefusal(with_arguments("[1]")),
            "messages[1].tool_calls[1].arguments_json: is not a JSON object");
  EXPECT_EQ(MessageRefusal(with_arguments("")),
            "messages[1].tool_calls[1].arguments_json: is not valid JSON at line 1, column 1");
  EXPECT_EQ(ToolRefusal({"b", "", "{\"maximum\": 18446744073709551616}"}),
            "tools[1].parameters_json_schema: integer '18446744073709551616' does not fit 64 bits");
  EXPECT_EQ(ToolRefusal({"b", "", "1"}), "tools[1].parameters_json_schema: is not a JSON object");
}

TEST(TemplateValuesTest, NamesThePlaceOfTextThatIsNotUtf8) {
  EXPECT_EQ(MessageRefusal({"\xff", ""}), "messages[1].role: a text is not valid UTF-8");
  EXPECT_EQ(MessageRefusal({.role = "user", .content = "", .reasoning = "\xc3"}),
            "messages[1].reasoning: a text is not valid UTF-8");
  EXPECT_EQ(MessageRefusal({.role = "user", .content = "", .tool_calls = {{"\xff", "a", "{}"}}}),
            "messages[1].tool_calls[0].id: a text is not valid UTF-8");
  EXPECT_EQ(ToolRefusal({"b", "\x80", ""}), "tools[1].description: a text is not valid UTF-8");
}

TEST(TemplateValuesTest, ChecksArgumentsThatStayText) {
  // Printed behind a text: an object would fail.
  constexpr char kText[] =
      "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.name + c.function.arguments "
      "}}"
      "{% endfor %}{% endfor %}";
  std::vector<ChatMessage> messages = {
      {.role = "assistant", .content = "", .tool_calls = {{"", "add", "{ \"b\":1 }"}}}};
  EXPECT_EQ(*Render({.messages = messages}, kText), "add{ \"b\":1 }");
  messages[0].tool_calls[0].arguments_json = "{";
  EXPECT_EQ(Render({.messages = messages}, kText).status().message(),
            "messages[0].tool_calls[0].arguments_json: is not valid JSON at line 1, column 2");
}

}  // namespace
}  // namespace tlm
