// Renders small templates over the variables that the tests of this folder share.
#ifndef TLM_TESTS_UNIT_MODEL_JINJA_RENDER_H_
#define TLM_TESTS_UNIT_MODEL_JINJA_RENDER_H_

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/chat/chat_template.h"

namespace tlm {

inline const nlohmann::json& TestVariables() {
  static const auto* const variables = new nlohmann::json(nlohmann::json::parse(R"({
    "s": "Hello", "u": "Straße ΟΔΟΣ 🙂", "n": 7, "f": 2.5, "t": true, "nil": null,
    "xs": [3, 1, 2], "words": ["b", "A", "c"], "d": {"a": 1, "b": [1, 2], "k": "v"},
    "users": [{"name": "Zoe", "age": 3}, {"name": "amy", "age": 20}, {"name": "Bob"}]})"));
  return *variables;
}

// Of a conversation of two messages: user "hi", assistant "yo".
inline absl::StatusOr<std::string> RenderTemplate(
    std::string_view source, const nlohmann::json& arguments = TestVariables()) {
  const auto chat = ChatTemplate::Parse(source, nlohmann::json::object());
  if (!chat.ok()) return chat.status();
  const std::vector<ChatMessage> messages = {{"user", "hi"}, {"assistant", "yo"}};
  return (*chat)->Render({.messages = messages}, arguments);
}

struct RenderCase {
  const char* source;
  const char* text;
};

inline void ExpectRenders(const std::vector<RenderCase>& cases) {
  for (const auto& [source, expected] : cases) {
    SCOPED_TRACE(source);
    const auto text = RenderTemplate(source);
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(*text, expected);
  }
}

inline void ExpectFails(std::string_view source, absl::StatusCode code,
                        std::string_view words = "") {
  SCOPED_TRACE(std::string(source.substr(0, 200)));
  const auto text = RenderTemplate(source);
  ASSERT_FALSE(text.ok()) << *text;
  EXPECT_EQ(text.status().code(), code) << text.status();
  const std::string message(text.status().message());
  EXPECT_NE(message.find(words), std::string::npos) << message;
}

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_MODEL_JINJA_RENDER_H_
