// The templates of published models beside what Hugging Face transformers renders of them
// (data/goldens.json, written by tests/peers/chat/make_goldens.py).
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "model/chat/chat_template.h"
#include "tests/support/conversation_json.h"

namespace tlm {
namespace {

using nlohmann::json;

std::string ReadData(const std::string& name) {
  const char* const source_dir = std::getenv("TLM_SOURCE_DIR");
  std::ifstream file(std::string(source_dir == nullptr ? "." : source_dir) +
                     "/tests/unit/model/chat/data/" + name);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(GoldenTest, FindsWhatTheTemplatesSupport) {
  struct Case {
    const char* name;
    bool tools;
    bool tool_calls;
    bool tool_results;
    bool arguments_as_text;
    const char* reasoning_switch;
  };
  constexpr Case kCases[] = {
      {"chatml.jinja", false, false, true, false, ""},
      {"deepseek-v3.1.jinja", true, true, true, true, "thinking"},
      {"gemma.jinja", false, false, false, false, ""},
      {"harmony.jinja", true, true, true, false, ""},
      {"hermes.jinja", true, true, true, false, ""},
      {"llama-3.1.jinja", true, true, true, false, ""},
      {"mistral-v0.3.jinja", true, true, true, false, ""},
      {"qwen2.5.jinja", true, true, true, false, ""},
      {"qwen3.jinja", true, true, true, false, "enable_thinking"},
      {"qwen3-coder.jinja", true, true, true, false, ""},
  };
  for (const Case& expected : kCases) {
    SCOPED_TRACE(expected.name);
    const auto chat =
        ChatTemplate::Parse(ReadData(expected.name), {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
    ASSERT_TRUE(chat.ok()) << chat.status();
    const ChatTemplateTraits& traits = (*chat)->traits();
    EXPECT_EQ(traits.tools, expected.tools);
    EXPECT_EQ(traits.tool_calls, expected.tool_calls);
    EXPECT_EQ(traits.tool_results, expected.tool_results);
    EXPECT_EQ(traits.arguments_as_text, expected.arguments_as_text);
    EXPECT_EQ(traits.reasoning_switch, expected.reasoning_switch);
  }
}

TEST(GoldenTest, RendersPublishedTemplatesAsHuggingFaceDoes) {
  const json goldens = json::parse(ReadData("goldens.json"), nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(goldens.is_object());
  ASSERT_GE(goldens["replies"].size(), 340u);
  for (const json& reply : goldens["replies"]) {
    const auto name = reply["template"].get<std::string>();
    const json& request = goldens["requests"][reply["request"]];
    SCOPED_TRACE(name + ": " + reply["request"].get<std::string>());
    const auto chat = ChatTemplate::Parse(ReadData(name), request["variables"]);
    ASSERT_TRUE(chat.ok()) << chat.status();
    const ConversationJson conversation(request);
    const auto text = (*chat)->Render(conversation.conversation(), request["arguments"]);
    if (reply.contains("text")) {
      ASSERT_TRUE(text.ok()) << text.status();
      EXPECT_EQ(*text, reply["text"].get<std::string>());
      continue;
    }
    // What the template raises is passed on in its own words; Python's words are not kept.
    ASSERT_FALSE(text.ok()) << *text;
    EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument);
    const auto words = reply["error"].get<std::string>();
    if (!words.empty()) {
      EXPECT_EQ(text.status().message(), words);
    }
  }
}

}  // namespace
}  // namespace tlm
