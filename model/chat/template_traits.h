// Finds out what a template does with a conversation by rendering small ones.
#ifndef TLM_MODEL_CHAT_TEMPLATE_TRAITS_H_
#define TLM_MODEL_CHAT_TEMPLATE_TRAITS_H_

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/chat/conversation.h"

namespace tlm {

// What a template does with a conversation.
struct ChatTemplateTraits {
  bool tools = false;              // renders the tools
  bool tool_calls = false;         // renders the tool calls of messages
  bool tool_results = false;       // renders messages of the role "tool"
  bool arguments_as_text = false;  // arguments of tool calls are JSON as a text, not an object
  // The value of an empty content next to calls. It is no key, as in transformers, unless the
  // template renders calls only with another value.
  enum class NoContent { kNoKey, kEmptyText, kNull };
  NoContent no_content = NoContent::kNoKey;
  std::string reasoning_switch;  // the variable that turns reasoning off and on; empty if there is
                                 // none
};

// Renders like a template with these traits.
using RenderProbe = std::function<absl::StatusOr<std::string>(const Conversation& conversation,
                                                              const nlohmann::json& arguments,
                                                              const ChatTemplateTraits& traits)>;

// Calls `render` at most 21 times, and no more after RESOURCE_EXHAUSTED. Nothing follows from a
// failure: a template that fails on every conversation has no traits. Tries only variables that
// occur in `source`.
ChatTemplateTraits FindTraits(const RenderProbe& render, std::string_view source);

}  // namespace tlm

#endif  // TLM_MODEL_CHAT_TEMPLATE_TRAITS_H_
