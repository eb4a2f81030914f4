// Conversations as a template sees them: in OpenAI's form.
#ifndef TLM_MODEL_CHAT_TEMPLATE_VALUES_H_
#define TLM_MODEL_CHAT_TEMPLATE_VALUES_H_

#include <span>

#include "absl/status/statusor.h"
#include "model/chat/chat_template.h"
#include "model/jinja/heap.h"
#include "model/jinja/value.h"

namespace tlm {

// [{"role": .., "content": .., "reasoning_content": .., "tool_calls": [{"type": "function", "id":
// .., "function": {"name": .., "arguments": ..}}], "tool_call_id": .., "name": ..}]; `traits` tell
// the form of `arguments`. What a message does not have, it has no key for. Reasoning has the three
// keys that templates read, in transformers' places: "thinking" first, the others where
// "reasoning_content" stands. INVALID_ARGUMENT names the place: "messages[2].role".
absl::StatusOr<jinja::Value> MessagesValue(jinja::Heap* heap, std::span<const ChatMessage> messages,
                                           const ChatTemplateTraits& traits);

// [{"type": "function", "function": {"name": .., "description": .., "parameters": ..}}]; None
// without tools. INVALID_ARGUMENT names the place: "tools[1].parameters_json_schema".
absl::StatusOr<jinja::Value> ToolsValue(jinja::Heap* heap, std::span<const ChatTool> tools);

}  // namespace tlm

#endif  // TLM_MODEL_CHAT_TEMPLATE_VALUES_H_
