// A conversation with a chat model, turn by turn.
//
//   tlm::client::Conversation conversation;
//   conversation.set_system("You answer in one sentence.");
//   conversation.AddUser("What is a transformer?");
//   tlm::v1::GenerateRequest request;
//   *request.mutable_chat() = conversation.ToInput();
//   auto result = client->Generate(request);
//   if (result.ok()) conversation.AddAnswer(result->outputs[0]);
//
// RunTools (tools.h) also calls the tools that answers ask for.
#ifndef TLM_CLIENT_CPP_CONVERSATION_H_
#define TLM_CLIENT_CPP_CONVERSATION_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "client/cpp/generate_collector.h"
#include "tlm/v1/generate.pb.h"

namespace tlm::client {

// A copyable value; not thread-safe.
class Conversation {
 public:
  // The system message; empty = none. Reset keeps it.
  void set_system(std::string text) { system_ = std::move(text); }
  const std::string& system() const { return system_; }

  void AddUser(std::string text);
  void AddAssistant(std::string text);
  // Adds an answer with its reasoning and its calls. Omits a call that is not complete.
  void AddAnswer(const Output& output);
  // Adds the result of a call. Every call of an answer needs one before the next answer.
  void AddToolResult(const ToolCall& call, std::string result);
  // Removes the last message, if there is one; never the system message.
  void DropLast();
  // Keeps the first `count` messages and removes the others; the system message does not count and
  // stays.
  void Truncate(size_t count);
  // Removes all messages but the system message.
  void Reset() { messages_.clear(); }

  // Returns the messages, oldest first, without the system message.
  const std::vector<v1::ChatInput::Message>& messages() const { return messages_; }

  // Makes the input of a request: the system message, if there is one, and all others.
  v1::ChatInput ToInput() const;

 private:
  std::string system_;
  std::vector<v1::ChatInput::Message> messages_;
};

}  // namespace tlm::client

#endif  // TLM_CLIENT_CPP_CONVERSATION_H_
