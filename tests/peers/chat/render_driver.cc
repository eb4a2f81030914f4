// Renders chat templates for compare.py: a JSON object a line in, one a line out.
//
// In: {"template": text, "variables": {...}, "arguments": {...}} and a conversation as
// tests/support/conversation_json.h has it. Out: {"text": ..} or {"error": .., "code": ..}, with
// the template's "traits" where it has any.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "model/chat/chat_template.h"
#include "tests/support/conversation_json.h"

namespace {

using nlohmann::json;

json TraitsJson(const tlm::ChatTemplateTraits& traits) {
  return {{"tools", traits.tools},
          {"tool_calls", traits.tool_calls},
          {"tool_results", traits.tool_results},
          {"arguments_as_text", traits.arguments_as_text},
          {"no_content", static_cast<int>(traits.no_content)},
          {"reasoning_switch", traits.reasoning_switch}};
}

// Keeps the last template: requests come in runs of one.
class Driver {
 public:
  json Answer(const json& request) {
    json reply;
    const absl::StatusOr<std::string> text = Render(request);
    if (text.ok()) {
      reply["text"] = *text;
    } else {
      reply["error"] = std::string(text.status().message());
      reply["code"] = absl::StatusCodeToString(text.status().code());
    }
    if (chat_.ok()) reply["traits"] = TraitsJson((*chat_)->traits());
    return reply;
  }

 private:
  absl::StatusOr<std::string> Render(const json& request) {
    const auto source = request.at("template").get<std::string>();
    if (!chat_.ok() || (*chat_)->source() != source) {
      chat_ = tlm::ChatTemplate::Parse(source, request.at("variables"));
    }
    if (!chat_.ok()) return chat_.status();
    const tlm::ConversationJson conversation(request);
    return (*chat_)->Render(conversation.conversation(), request.at("arguments"));
  }

  absl::StatusOr<std::unique_ptr<tlm::ChatTemplate>> chat_ = absl::UnknownError("no template yet");
};

}  // namespace

int main() {
  Driver driver;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::cout << driver.Answer(json::parse(line)).dump() << '\n';
  }
  return 0;
}
