// A conversation with a chat model, turn by turn.
//
//   tlm::client::Conversation conversation;
//   conversation.set_system("You answer in one sentence.");
//   conversation.AddUser("What is a transformer?");
//   tlm::v1::GenerateRequest request;
//   *request.mutable_chat() = conversation.ToInput();
//   auto result = client->Generate(request);
//   if (result.ok()) conversation.AddAssistant(result->outputs[0].text);
#ifndef TLM_CLIENT_CPP_CONVERSATION_H_
#define TLM_CLIENT_CPP_CONVERSATION_H_

#include <string>
#include <vector>

#include "tlm/v1/generate.pb.h"

namespace tlm::client {

// A value like any other; not thread-safe.
class Conversation {
 public:
  // What the model is told before everything else; empty = nothing. Stays over Reset.
  void set_system(std::string text) { system_ = std::move(text); }
  const std::string& system() const { return system_; }

  void AddUser(std::string text);
  void AddAssistant(std::string text);
  // Takes the latest message back, if there is one; the system's is not one of them.
  void DropLast();
  // Begins anew.
  void Reset() { messages_.clear(); }

  // What was said, oldest first, without the system's message.
  const std::vector<v1::ChatInput::Message>& messages() const { return messages_; }

  // The request's input: the system's message, if there is one, and all others.
  v1::ChatInput ToInput() const;

 private:
  std::string system_;
  std::vector<v1::ChatInput::Message> messages_;
};

}  // namespace tlm::client

#endif  // TLM_CLIENT_CPP_CONVERSATION_H_
