#include "client/cpp/conversation.h"

#include <utility>

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
