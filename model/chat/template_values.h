// Builds the values of conversations that a template sees, in OpenAI's form.
#ifndef TLM_MODEL_CHAT_TEMPLATE_VALUES_H_
#define TLM_MODEL_CHAT_TEMPLATE_VALUES_H_

#include <span>

#include "absl/status/statusor.h"
#include "model/chat/conversation.h"
#include "model/chat/template_traits.h"
#include "model/jinja/heap.h"
#include "model/jinja/value.h"

namespace tlm {

// Builds [{"role": .., "content": .., "reasoning_content": .., "tool_calls": [{"type": "function",
// "id": .., "function": {"name": .., "arguments": ..}}], "tool_call_id": .., "name": ..}]; `traits`
// decide the form of `arguments`. Absent parts of a message have no key. Reasoning has the three
// keys that templates read, in transformers' places: "thinking" comes first, the others at the
// place of "reasoning_content". INVALID_ARGUMENT names the place: "messages[2].role".
absl::StatusOr<jinja::Value> MessagesValue(jinja::Heap* heap, std::span<const ChatMessage> messages,
                                           const ChatTemplateTraits& traits);

// Builds [{"type": "function", "function": {"name": .., "description": .., "parameters": ..}}], or
// None without tools. INVALID_ARGUMENT names the place: "tools[1].parameters_json_schema".
absl::StatusOr<jinja::Value> ToolsValue(jinja::Heap* heap, std::span<const ChatTool> tools);

}  // namespace tlm

#endif  // TLM_MODEL_CHAT_TEMPLATE_VALUES_H_
