// The templates of published models beside what Hugging Face transformers renders of them
// (data/goldens.json, written by tests/peers/chat/make_goldens.py).
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "model/chat/chat_template.h"

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

std::vector<ChatMessage> Messages(const json& golden) {
  std::vector<ChatMessage> messages;
  for (const json& message : golden["messages"]) {
    messages.push_back({message["role"], message["content"]});
  }
  return messages;
}

TEST(GoldenTest, RendersPublishedTemplatesAsHuggingFaceDoes) {
  const json goldens = json::parse(ReadData("goldens.json"), nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(goldens.is_array());
  ASSERT_GE(goldens.size(), 140u);
  for (const json& golden : goldens) {
    SCOPED_TRACE(golden["template"].get<std::string>() + ": " + golden["name"].get<std::string>());
    const auto chat = ChatTemplate::Parse(ReadData(golden["template"]), golden["variables"]);
    ASSERT_TRUE(chat.ok()) << chat.status();
    const auto text =
        (*chat)->Render(Messages(golden), golden["add_generation_prompt"], golden["arguments"]);
    if (golden.contains("text")) {
      ASSERT_TRUE(text.ok()) << text.status();
      EXPECT_EQ(*text, golden["text"].get<std::string>());
      continue;
    }
    // What the template raises is passed on in its own words; Python's words are not kept.
    ASSERT_FALSE(text.ok()) << *text;
    EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument);
    const auto words = golden["error"].get<std::string>();
    if (!words.empty()) {
      EXPECT_EQ(text.status().message(), words);
    }
  }
}

}  // namespace
}  // namespace tlm
