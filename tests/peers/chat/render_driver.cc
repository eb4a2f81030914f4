// Renders chat templates for compare.py: a JSON object a line in, one a line out.
//
// In: {"template": text, "variables": {...}, "messages": [{"role": .., "content": ..}, ...],
// "add_generation_prompt": bool, "arguments": {...}}. Out: {"text": ..} or {"error": .., "code":
// ..}.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/chat/chat_template.h"

namespace {

using nlohmann::json;

absl::StatusOr<std::string> Render(const json& request) {
  auto chat = tlm::ChatTemplate::Parse(request["template"].get<std::string>(),
                                       request.value("variables", json::object()));
  if (!chat.ok()) return chat.status();
  std::vector<tlm::ChatMessage> messages;
  for (const json& message : request["messages"]) {
    messages.push_back({message["role"], message["content"]});
  }
  return (*chat)->Render(messages, request.value("add_generation_prompt", false),
                         request.value("arguments", json::object()));
}

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    const absl::StatusOr<std::string> text = Render(json::parse(line));
    json reply;
    if (text.ok()) {
      reply["text"] = *text;
    } else {
      reply["error"] = std::string(text.status().message());
      reply["code"] = absl::StatusCodeToString(text.status().code());
    }
    std::cout << reply.dump() << '\n';
  }
  return 0;
}
