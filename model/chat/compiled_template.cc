#include "model/chat/compiled_template.h"

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/jinja/globals.h"
#include "model/jinja/interpreter.h"
#include "model/jinja/json_values.h"
#include "model/jinja/parser.h"

namespace tlm {
namespace {

using jinja::Heap;
using jinja::MakeConstantText;
using jinja::Value;

absl::StatusOr<Value> MessageValue(Heap* heap, const ChatMessage& message) {
  TLM_ASSIGN_OR_RETURN(Value role, jinja::CheckedText(heap, message.role));
  TLM_ASSIGN_OR_RETURN(Value content, jinja::CheckedText(heap, message.content));
  return heap->MakeDict({{MakeConstantText("role"), std::move(role)},
                         {MakeConstantText("content"), std::move(content)}});
}

absl::StatusOr<Value> MessagesValue(Heap* heap, std::span<const ChatMessage> messages) {
  std::vector<Value> items;
  for (size_t i = 0; i < messages.size(); ++i) {
    absl::StatusOr<Value> item = MessageValue(heap, messages[i]);
    if (!item.ok()) return WithContext(item.status(), fmt::format("messages[{}]", i));
    items.push_back(*std::move(item));
  }
  return heap->MakeList(std::move(items));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChatTemplate>> CompiledTemplate::Create(
    std::string_view source, const nlohmann::json& variables, Clock* clock) {
  if (!variables.is_object()) {
    return InvalidArgument("the template's variables are not an object");
  }
  TLM_ASSIGN_OR_RETURN(jinja::Block block, jinja::ParseTemplate(source));
  return std::unique_ptr<ChatTemplate>(new CompiledTemplate(std::move(block), variables, clock));
}

CompiledTemplate::CompiledTemplate(jinja::Block block, nlohmann::json variables, Clock* clock)
    : block_(std::move(block)), variables_(std::move(variables)), clock_(clock) {}

absl::StatusOr<std::string> CompiledTemplate::Render(std::span<const ChatMessage> messages,
                                                     bool add_generation_prompt,
                                                     const nlohmann::json& arguments) const {
  TLM_RETURN_IF_ERROR(CheckArguments(arguments));
  Heap heap;
  TLM_ASSIGN_OR_RETURN(const Variables variables,
                       MakeVariables(&heap, messages, add_generation_prompt, arguments));
  absl::StatusOr<std::string> text = jinja::Interpreter(&heap, variables).Render(block_);
  if (!text.ok()) return absl::Status(text.status().code(), text.status().message());
  return text;
}

absl::Status CompiledTemplate::CheckArguments(const nlohmann::json& arguments) const {
  if (arguments.is_null()) return absl::OkStatus();
  if (!arguments.is_object()) return InvalidArgument("template arguments are not an object");
  for (const auto& [name, value] : arguments.items()) {
    if (name == "messages" || name == "add_generation_prompt" || variables_.contains(name)) {
      return InvalidArgument("template argument {} would replace the server's own", Quoted(name));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<CompiledTemplate::Variables> CompiledTemplate::MakeVariables(
    Heap* heap, std::span<const ChatMessage> messages, bool add_generation_prompt,
    const nlohmann::json& arguments) const {
  TLM_ASSIGN_OR_RETURN(Variables variables, jinja::MakeGlobals(heap, clock_));
  // Hugging Face's renderer defines these two in any case.
  variables.emplace_back("tools", jinja::None{});
  variables.emplace_back("documents", jinja::None{});
  for (const nlohmann::json* const source : {&variables_, &arguments}) {
    if (source->is_null()) continue;
    for (const auto& [name, json] : source->items()) {
      absl::StatusOr<Value> value = jinja::FromJson(heap, json);
      if (!value.ok()) return WithContext(value.status(), "template argument " + Quoted(name));
      variables.emplace_back(name, *std::move(value));
    }
  }
  TLM_ASSIGN_OR_RETURN(Value list, MessagesValue(heap, messages));
  variables.emplace_back("messages", std::move(list));
  variables.emplace_back("add_generation_prompt", add_generation_prompt);
  return variables;
}

}  // namespace tlm
