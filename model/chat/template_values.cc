#include "model/chat/template_values.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/jinja/json_value.h"

namespace tlm {
namespace {

using jinja::Heap;
using jinja::MakeConstantText;
using jinja::Value;

// Builds an object member by member.
class ObjectValue {
 public:
  ObjectValue(Heap* heap, std::string place) : heap_(heap), place_(std::move(place)) {}

  absl::Status Add(std::string_view key, absl::StatusOr<Value> value) {
    if (!value.ok()) return value.status();
    members_.emplace_back(MakeConstantText(std::string(key)), *std::move(value));
    return absl::OkStatus();
  }
  absl::Status AddText(std::string_view key, std::string_view text) {
    return AddOf(key, key, jinja::TextFrom(heap_, text));
  }
  absl::Status AddTextUnlessEmpty(std::string_view key, std::string_view text) {
    return text.empty() ? absl::OkStatus() : AddText(key, text);
  }
  absl::Status AddReasoning(std::string_view key, std::string_view text) {
    if (text.empty()) return absl::OkStatus();
    return AddOf(key, "reasoning", jinja::TextFrom(heap_, text));
  }
  // Adds the JSON object in the field `field`, as a text if `is_text`.
  absl::Status AddObject(std::string_view key, std::string_view field, std::string_view text,
                         bool is_text = false) {
    absl::StatusOr<Value> value = jinja::ParseJson(heap_, text);
    if (value.ok() && !jinja::Is<const jinja::Dict*>(*value)) {
      value = InvalidArgument("is not a JSON object");
    }
    if (value.ok() && is_text) value = heap_->MakeText(std::string(text));
    return AddOf(key, field, std::move(value));
  }

  absl::StatusOr<Value> Finish() && { return heap_->MakeDict(std::move(members_)); }

 private:
  absl::Status AddOf(std::string_view key, std::string_view field, absl::StatusOr<Value> value) {
    if (value.ok()) return Add(key, std::move(value));
    return WithContext(value.status(), fmt::format("{}.{}", place_, field));
  }

  Heap* const heap_;
  const std::string place_;
  jinja::Dict::Members members_;
};

absl::StatusOr<Value> CallValue(Heap* heap, const ChatToolCall& call, const std::string& place,
                                const ChatTemplateTraits& traits) {
  ObjectValue function(heap, place);
  TLM_RETURN_IF_ERROR(function.AddText("name", call.name));
  TLM_RETURN_IF_ERROR(function.AddObject("arguments", "arguments_json", call.arguments_json,
                                         traits.arguments_as_text));
  ObjectValue value(heap, place);
  TLM_RETURN_IF_ERROR(value.AddText("type", "function"));
  TLM_RETURN_IF_ERROR(value.AddTextUnlessEmpty("id", call.id));
  TLM_RETURN_IF_ERROR(value.Add("function", std::move(function).Finish()));
  return std::move(value).Finish();
}

absl::StatusOr<Value> CallsValue(Heap* heap, std::span<const ChatToolCall> calls,
                                 const std::string& place, const ChatTemplateTraits& traits) {
  std::vector<Value> items;
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string of_call = fmt::format("{}.tool_calls[{}]", place, i);
    TLM_ASSIGN_OR_RETURN(items.emplace_back(), CallValue(heap, calls[i], of_call, traits));
  }
  return heap->MakeList(std::move(items));
}

absl::StatusOr<Value> MessageValue(Heap* heap, const ChatMessage& message, const std::string& place,
                                   const ChatTemplateTraits& traits) {
  ObjectValue value(heap, place);
  TLM_RETURN_IF_ERROR(value.AddReasoning("thinking", message.reasoning));
  TLM_RETURN_IF_ERROR(value.AddText("role", message.role));
  using NoContent = ChatTemplateTraits::NoContent;
  const bool has_none = message.content.empty() && !message.tool_calls.empty();
  if (has_none && traits.no_content == NoContent::kNull) {
    TLM_RETURN_IF_ERROR(value.Add("content", jinja::None{}));
  } else if (!has_none || traits.no_content == NoContent::kEmptyText) {
    TLM_RETURN_IF_ERROR(value.AddText("content", message.content));
  }
  TLM_RETURN_IF_ERROR(value.AddReasoning("reasoning_content", message.reasoning));
  TLM_RETURN_IF_ERROR(value.AddReasoning("reasoning", message.reasoning));
  if (!message.tool_calls.empty()) {
    TLM_RETURN_IF_ERROR(
        value.Add("tool_calls", CallsValue(heap, message.tool_calls, place, traits)));
  }
  TLM_RETURN_IF_ERROR(value.AddTextUnlessEmpty("tool_call_id", message.tool_call_id));
  TLM_RETURN_IF_ERROR(value.AddTextUnlessEmpty("name", message.name));
  return std::move(value).Finish();
}

absl::StatusOr<Value> ToolValue(Heap* heap, const ChatTool& tool, const std::string& place) {
  ObjectValue function(heap, place);
  TLM_RETURN_IF_ERROR(function.AddText("name", tool.name));
  TLM_RETURN_IF_ERROR(function.AddTextUnlessEmpty("description", tool.description));
  if (!tool.parameters_json_schema.empty()) {
    TLM_RETURN_IF_ERROR(
        function.AddObject("parameters", "parameters_json_schema", tool.parameters_json_schema));
  }
  ObjectValue value(heap, place);
  TLM_RETURN_IF_ERROR(value.AddText("type", "function"));
  TLM_RETURN_IF_ERROR(value.Add("function", std::move(function).Finish()));
  return std::move(value).Finish();
}

}  // namespace

absl::StatusOr<Value> MessagesValue(Heap* heap, std::span<const ChatMessage> messages,
                                    const ChatTemplateTraits& traits) {
  std::vector<Value> items;
  for (size_t i = 0; i < messages.size(); ++i) {
    TLM_ASSIGN_OR_RETURN(items.emplace_back(),
                         MessageValue(heap, messages[i], fmt::format("messages[{}]", i), traits));
  }
  return heap->MakeList(std::move(items));
}

absl::StatusOr<Value> ToolsValue(Heap* heap, std::span<const ChatTool> tools) {
  if (tools.empty()) return jinja::None{};
  std::vector<Value> items;
  for (size_t i = 0; i < tools.size(); ++i) {
    TLM_ASSIGN_OR_RETURN(items.emplace_back(),
                         ToolValue(heap, tools[i], fmt::format("tools[{}]", i)));
  }
  return heap->MakeList(std::move(items));
}

}  // namespace tlm
