// Reads conversations from the files of tests: {"messages": [{"role": .., "content": ..,
// "reasoning": .., "tool_calls": [{"id": .., "name": .., "arguments_json": ..}], "tool_call_id":
// .., "name": ..}], "tools": [{"name": .., "description": .., "parameters_json_schema": ..}],
// "add_generation_prompt": ..}. Every member of a message except role and content may be missing.
#ifndef TLM_TESTS_SUPPORT_CONVERSATION_JSON_H_
#define TLM_TESTS_SUPPORT_CONVERSATION_JSON_H_

#include <nlohmann/json.hpp>
#include <vector>

#include "model/chat/chat_template.h"

namespace tlm {

class ConversationJson {
 public:
  explicit ConversationJson(const nlohmann::json& source)
      : add_generation_prompt_(source.at("add_generation_prompt")) {
    for (const nlohmann::json& message : source.at("messages")) {
      messages_.push_back({message.at("role"), message.at("content"),
                           message.value("reasoning", ""), Calls(message),
                           message.value("tool_call_id", ""), message.value("name", "")});
    }
    for (const nlohmann::json& tool : source.at("tools")) {
      tools_.push_back(
          {tool.at("name"), tool.at("description"), tool.at("parameters_json_schema")});
    }
  }

  // The result lives as long as this object.
  Conversation conversation() const {
    return {
        .messages = messages_, .tools = tools_, .add_generation_prompt = add_generation_prompt_};
  }

 private:
  static std::vector<ChatToolCall> Calls(const nlohmann::json& message) {
    std::vector<ChatToolCall> calls;
    for (const nlohmann::json& call : message.value("tool_calls", nlohmann::json::array())) {
      calls.push_back({call.at("id"), call.at("name"), call.at("arguments_json")});
    }
    return calls;
  }

  std::vector<ChatMessage> messages_;
  std::vector<ChatTool> tools_;
  const bool add_generation_prompt_;
};

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_CONVERSATION_JSON_H_
