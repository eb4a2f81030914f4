// Reads conversations and tools.
#ifndef TLM_CLIENT_OPENAI_MAPPING_CHAT_MESSAGES_H_
#define TLM_CLIENT_OPENAI_MAPPING_CHAT_MESSAGES_H_

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "client/openai/mapping/fields.h"
#include "tlm/v1/generate.pb.h"

namespace tlm::openai {

// Reads `messages` of /v1/chat/completions into chat.messages.
void ReadMessages(Fields* body, v1::ChatInput* chat);

// Returns a text that is a string or an array of text parts, whose `type` is one of `types`. Parts
// are joined by line breaks. nullopt if the member is absent.
std::optional<std::string> ReadContent(Fields* message, std::string_view key,
                                       std::initializer_list<std::string_view> types);

// "developer" becomes "system", as templates know it.
std::string RoleOf(const std::string& role);

// Reads one function {"name", "description", "parameters", "strict"} as a tool.
void ReadFunction(Fields* function, v1::ChatInput* chat);

// Reads tool_choice: "none", "auto", "required", or an object that names a function; `nested`: in a
// member "function".
void ReadToolChoice(Fields* body, bool nested, v1::ChatInput* chat);

// Reads an effort: "none", "minimal", "low", "medium", "high" or "xhigh".
std::optional<std::string> ReadEffort(Fields* fields, std::string_view key);

// Sets reasoning and the template's variable `reasoning_effort` from an effort, which may be
// absent. "none" turns reasoning off; any other effort turns it on if the model has it.
void SetReasoningEffort(const std::optional<std::string>& effort, bool model_reasons,
                        v1::ChatInput* chat);

}  // namespace tlm::openai

#endif  // TLM_CLIENT_OPENAI_MAPPING_CHAT_MESSAGES_H_
