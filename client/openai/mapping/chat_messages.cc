#include "client/openai/mapping/chat_messages.h"

#include <fmt/format.h>

#include <algorithm>

#include "client/openai/mapping/common_fields.h"

namespace tlm::openai {
namespace {

constexpr size_t kMaxToolCalls = 4096;

void ReadToolCalls(Fields* message, v1::ChatInput::Message* out) {
  const std::vector<Json>* const calls = message->Array("tool_calls", kMaxToolCalls);
  if (calls == nullptr) return;
  for (size_t i = 0; i < calls->size(); ++i) {
    const std::string name = fmt::format("{}[{}]", message->Name("tool_calls"), i);
    Fields call = Fields::Open((*calls)[i], name, message->reading());
    call.OneOf("type", {"function"});
    call.NoEffect({"index"});
    v1::ChatInput::ToolCall* const added = out->add_tool_calls();
    added->set_id(call.String("id").value_or(""));
    auto function = call.Object("function");
    if (!function) {
      call.Fail("function", "is missing");
      return;
    }
    added->set_name(function->String("name").value_or(""));
    const std::string arguments = function->String("arguments").value_or("");
    added->set_arguments_json(arguments.empty() ? "{}" : arguments);
    function->RefuseUnknown();
    call.RefuseUnknown();
  }
}

void ReadMessage(Fields* message, v1::ChatInput::Message* out) {
  const auto role = message->OneOf("role", {"system", "developer", "user", "assistant", "tool"});
  if (!role) message->Fail("role", "is missing");
  out->set_role(RoleOf(role.value_or("")));
  const auto content = ReadContent(message, "content", {"text"});
  if (!content && role != "assistant") message->Fail("content", "is missing");
  out->set_content(content.value_or(""));
  out->set_name(message->String("name").value_or(""));
  if (role == "assistant") {
    const auto reasoning = message->String("reasoning_content");
    const auto other_name = message->String("reasoning");
    out->set_reasoning(reasoning ? *reasoning : other_name.value_or(""));
    ReadToolCalls(message, out);
    message->Refuse("refusal", "is not supported");
    message->Refuse("audio", "is not supported");
    message->Refuse("function_call", "is not supported: use tool_calls");
    message->NoEffect({"annotations"});
  } else if (role == "tool") {
    out->set_tool_call_id(message->String("tool_call_id").value_or(""));
  }
  message->RefuseUnknown();
}

}  // namespace

std::string RoleOf(const std::string& role) { return role == "developer" ? "system" : role; }

std::optional<std::string> ReadContent(Fields* message, std::string_view key,
                                       std::initializer_list<std::string_view> types) {
  const Json* const content = message->Find(key);
  if (content == nullptr) return std::nullopt;
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) {
    message->Fail(key,
                  fmt::format("is {}, it must be a string or an array of parts", Shown(*content)));
    return std::nullopt;
  }
  std::string text;
  for (size_t i = 0; i < content->size(); ++i) {
    const std::string name = fmt::format("{}[{}]", message->Name(key), i);
    Fields part = Fields::Open((*content)[i], name, message->reading());
    const auto type = part.String("type");
    if (!type || std::find(types.begin(), types.end(), *type) == types.end()) {
      part.Fail("type", fmt::format("is {}, only text is supported: {}",
                                    type ? Shown(*type) : "missing", fmt::join(types, ", ")));
      return std::nullopt;
    }
    const auto part_text = part.String("text");
    if (!part_text) part.Fail("text", "is missing");
    part.NoEffect({"annotations", "logprobs", "prompt_cache_breakpoint"});
    part.RefuseUnknown();
    if (i > 0) text += '\n';
    text += part_text.value_or("");
  }
  return text;
}

void ReadMessages(Fields* body, v1::ChatInput* chat) {
  const std::vector<Json>* const messages = body->Array("messages", kMaxListed);
  if (messages == nullptr) {
    body->Fail("messages", "is missing");
    return;
  }
  for (size_t i = 0; i < messages->size() && body->ok(); ++i) {
    Fields message = Fields::Open((*messages)[i], fmt::format("messages[{}]", i), body->reading());
    ReadMessage(&message, chat->add_messages());
  }
}

void ReadFunction(Fields* function, v1::ChatInput* chat) {
  v1::ChatInput::Tool* const tool = chat->add_tools();
  const auto name = function->String("name");
  if (!name) function->Fail("name", "is missing");
  tool->set_name(name.value_or(""));
  tool->set_description(function->String("description").value_or(""));
  if (const Json* const parameters = function->Find("parameters")) {
    if (!parameters->is_object()) {
      function->Fail("parameters",
                     fmt::format("is {}, it must be a JSON Schema object", Shown(*parameters)));
    }
    // An empty object is OpenAI's schema of a function without parameters.
    if (!parameters->empty()) tool->set_parameters_json_schema(Written(*parameters));
  }
  function->Bool("strict");
  function->RefuseUnknown();
}

void ReadToolChoice(Fields* body, bool nested, v1::ChatInput* chat) {
  const Json* const value = body->Find("tool_choice");
  if (value == nullptr) return;
  if (!value->is_object()) {
    const auto mode = body->OneOf("tool_choice", {"none", "auto", "required"});
    chat->mutable_tool_choice()->set_mode(mode == "none"       ? v1::ChatInput::ToolChoice::NONE
                                          : mode == "required" ? v1::ChatInput::ToolChoice::REQUIRED
                                                               : v1::ChatInput::ToolChoice::AUTO);
    return;
  }
  Fields choice = Fields::Open(*value, "tool_choice", body->reading());
  choice.OneOf("type", {"function"});
  std::optional<std::string> name;
  if (!nested) {
    name = choice.String("name");
  } else if (auto function = choice.Object("function")) {
    name = function->String("name");
    function->RefuseUnknown();
  }
  if (!name) choice.Fail(nested ? "function.name" : "name", "is missing");
  choice.RefuseUnknown();
  chat->mutable_tool_choice()->set_name(name.value_or(""));
}

std::optional<std::string> ReadEffort(Fields* fields, std::string_view key) {
  return fields->OneOf(key, {"none", "minimal", "low", "medium", "high", "xhigh"});
}

void SetReasoningEffort(const std::optional<std::string>& effort, bool model_reasons,
                        v1::ChatInput* chat) {
  if (!effort) return;
  if (*effort == "none") {
    chat->mutable_reasoning()->set_enabled(false);
    return;
  }
  // Templates know three efforts.
  const std::string known = *effort == "minimal" ? "low" : *effort == "xhigh" ? "high" : *effort;
  auto& variables = *chat->mutable_template_arguments()->mutable_fields();
  variables["reasoning_effort"].set_string_value(known);
  if (model_reasons) chat->mutable_reasoning()->set_enabled(true);
}

}  // namespace tlm::openai
