#include "client/cpp/conversation.h"

namespace tlm::client {
namespace {

v1::ChatInput::Message MakeMessage(const char* role, std::string content) {
  v1::ChatInput::Message message;
  message.set_role(role);
  message.set_content(std::move(content));
  return message;
}

}  // namespace

void Conversation::AddUser(std::string text) {
  messages_.push_back(MakeMessage("user", std::move(text)));
}

void Conversation::AddAssistant(std::string text) {
  messages_.push_back(MakeMessage("assistant", std::move(text)));
}

void Conversation::AddAnswer(const Output& output) {
  v1::ChatInput::Message message = MakeMessage("assistant", output.content);
  message.set_reasoning(output.reasoning);
  for (const ToolCall& call : output.tool_calls) {
    if (!call.complete) continue;
    v1::ChatInput::ToolCall& added = *message.add_tool_calls();
    added.set_id(call.id);
    added.set_name(call.name);
    added.set_arguments_json(call.arguments_json);
  }
  messages_.push_back(std::move(message));
}

void Conversation::AddToolResult(const ToolCall& call, std::string result) {
  v1::ChatInput::Message message = MakeMessage("tool", std::move(result));
  message.set_tool_call_id(call.id);
  message.set_name(call.name);
  messages_.push_back(std::move(message));
}

void Conversation::Truncate(size_t count) {
  if (count < messages_.size()) messages_.resize(count);
}

void Conversation::DropLast() {
  if (!messages_.empty()) messages_.pop_back();
}

v1::ChatInput Conversation::ToInput() const {
  v1::ChatInput input;
  if (!system_.empty()) *input.add_messages() = MakeMessage("system", system_);
  input.mutable_messages()->Add(messages_.begin(), messages_.end());
  return input;
}

}  // namespace tlm::client
