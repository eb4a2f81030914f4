// A conversation: the input of a chat template.
#ifndef TLM_MODEL_CHAT_CONVERSATION_H_
#define TLM_MODEL_CHAT_CONVERSATION_H_

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tlm {

// The template sees JSON texts as Python reads them: keys in their order; if a key occurs twice,
// the last value counts. Integers have 64 bits.
struct ChatToolCall {
  std::string id;  // empty: the template sees no id
  std::string name;
  std::string arguments_json;  // an object
};

struct ChatMessage {
  std::string role;
  std::string content;         // empty with calls: see ChatTemplateTraits::no_content
  std::string reasoning = {};  // given under each key that templates read it from
  std::vector<ChatToolCall> tool_calls = {};
  std::string tool_call_id = {};
  std::string name = {};
};

struct ChatTool {
  std::string name;
  std::string description;             // empty: the template sees no description
  std::string parameters_json_schema;  // an object; empty: the template sees no parameters
};

// The input of a rendering. The spans must outlive the call.
struct Conversation {
  std::span<const ChatMessage> messages;
  std::span<const ChatTool> tools = {};
  bool add_generation_prompt = true;
  // Sets the template's switch for reasoning, where it has one. Unset: the template decides.
  std::optional<bool> reasoning = {};
};

}  // namespace tlm

#endif  // TLM_MODEL_CHAT_CONVERSATION_H_
