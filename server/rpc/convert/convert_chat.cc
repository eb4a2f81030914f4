#include "server/rpc/convert/convert_chat.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "model/base/json.h"
#include "server/rpc/convert/field_error.h"

namespace tlm {
namespace {

constexpr char kArguments[] = "chat.template_arguments";
constexpr int kMaxArgumentDepth = 16;
// Beyond this, a double cannot distinguish neighbouring integers.
constexpr double kMaxWhole = 0x1p53;

absl::StatusOr<nlohmann::json> ToJson(const google::protobuf::Value& value, int depth);

absl::StatusOr<nlohmann::json> ToJson(const google::protobuf::Struct& message, int depth) {
  if (depth > kMaxArgumentDepth) {
    return BadField(kArguments, "is nested deeper than {}", kMaxArgumentDepth);
  }
  nlohmann::json object = nlohmann::json::object();
  for (const auto& [key, value] : message.fields()) {
    TLM_ASSIGN_OR_RETURN(object[key], ToJson(value, depth + 1));
  }
  return object;
}

absl::StatusOr<nlohmann::json> ToJson(const google::protobuf::ListValue& message, int depth) {
  if (depth > kMaxArgumentDepth) {
    return BadField(kArguments, "is nested deeper than {}", kMaxArgumentDepth);
  }
  nlohmann::json array = nlohmann::json::array();
  for (const google::protobuf::Value& value : message.values()) {
    TLM_ASSIGN_OR_RETURN(nlohmann::json element, ToJson(value, depth + 1));
    array.push_back(std::move(element));
  }
  return array;
}

// Protobuf has one kind of number; templates count with integers.
absl::StatusOr<nlohmann::json> NumberToJson(double number) {
  if (!std::isfinite(number)) return BadField(kArguments, "contains the number {}", number);
  if (std::trunc(number) == number && std::abs(number) <= kMaxWhole) {
    return nlohmann::json(static_cast<int64_t>(number));
  }
  return nlohmann::json(number);
}

absl::StatusOr<nlohmann::json> ToJson(const google::protobuf::Value& value, int depth) {
  switch (value.kind_case()) {
    case google::protobuf::Value::kNullValue:
      return nlohmann::json(nullptr);
    case google::protobuf::Value::kBoolValue:
      return nlohmann::json(value.bool_value());
    case google::protobuf::Value::kNumberValue:
      return NumberToJson(value.number_value());
    case google::protobuf::Value::kStringValue:
      return nlohmann::json(value.string_value());
    case google::protobuf::Value::kListValue:
      return ToJson(value.list_value(), depth);
    case google::protobuf::Value::kStructValue:
      return ToJson(value.struct_value(), depth);
    case google::protobuf::Value::KIND_NOT_SET:
      break;
  }
  return BadField(kArguments, "contains a value that is not set");
}

// A template's input, and the total bytes of its texts.
struct ChatTexts {
  std::vector<ChatMessage> messages;
  std::vector<ChatTool> tools;
  int64_t bytes = 0;

  const std::string& Count(const std::string& text) {
    bytes += static_cast<int64_t>(text.size());
    return text;
  }
};

absl::Status ConvertMessage(const v1::ChatInput::Message& from, const std::string& field,
                            const ChatTemplateTraits& traits, ChatTexts& texts) {
  if (from.role().empty()) return BadField(field + ".role", "is empty");
  ChatMessage message = {.role = texts.Count(from.role()),
                         .content = texts.Count(from.content()),
                         .reasoning = texts.Count(from.reasoning()),
                         .tool_call_id = texts.Count(from.tool_call_id()),
                         .name = texts.Count(from.name())};
  if (!from.tool_calls().empty() && !traits.tool_calls) {
    return MissingTrait(field + ".tool_calls", "the model's chat template does not render calls");
  }
  for (int i = 0; i < from.tool_calls_size(); ++i) {
    const v1::ChatInput::ToolCall& call = from.tool_calls(i);
    if (call.name().empty()) {
      return BadField(fmt::format("{}.tool_calls[{}].name", field, i), "is empty");
    }
    message.tool_calls.push_back({.id = texts.Count(call.id()),
                                  .name = texts.Count(call.name()),
                                  .arguments_json = texts.Count(call.arguments_json())});
  }
  texts.messages.push_back(std::move(message));
  return absl::OkStatus();
}

absl::Status CheckToolName(const std::string& name, const std::string& field) {
  constexpr size_t kMaxBytes = 256;
  if (name.empty() || name.size() > kMaxBytes) {
    return BadField(field, "has {} bytes, the range is [1, {}]", name.size(), kMaxBytes);
  }
  const auto fits = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           std::string_view("_.:/-").find(c) != std::string_view::npos;
  };
  if (std::ranges::all_of(name, fits)) return absl::OkStatus();
  return BadField(field, "is {}, a name has letters, digits and _.:/- alone", Quoted(name));
}

absl::Status CheckParameters(const std::string& schema, const std::string& field) {
  if (schema.empty()) return absl::OkStatus();
  const absl::StatusOr<nlohmann::json> parsed = ParseJson(schema);
  if (!parsed.ok())
    return BadField(field, "is not JSON: {}", std::string(parsed.status().message()));
  if (!parsed->is_object()) return BadField(field, "is {}, not an object", Quoted(schema));
  const auto type = parsed->find("type");
  if (type == parsed->end() || *type == "object") return absl::OkStatus();
  return BadField(field, "has the type {}, arguments are of the type \"object\"",
                  Quoted(type->dump(-1, ' ', true)));
}

absl::Status ConvertTools(const v1::ChatInput& chat, const RequestLimits& limits,
                          ChatTexts& texts) {
  TLM_RETURN_IF_ERROR(CheckCount("chat.tools", chat.tools_size(), limits.max_tools));
  std::map<std::string_view, int> known;
  for (int i = 0; i < chat.tools_size(); ++i) {
    const v1::ChatInput::Tool& tool = chat.tools(i);
    const std::string field = fmt::format("chat.tools[{}]", i);
    TLM_RETURN_IF_ERROR(CheckToolName(tool.name(), field + ".name"));
    const auto [other, is_new] = known.emplace(tool.name(), i);
    if (!is_new) {
      return BadField(field + ".name", "is {}, the name of chat.tools[{}]", Quoted(tool.name()),
                      other->second);
    }
    texts.tools.push_back({.name = texts.Count(tool.name()),
                           .description = texts.Count(tool.description()),
                           .parameters_json_schema = texts.Count(tool.parameters_json_schema())});
  }
  return absl::OkStatus();
}

absl::StatusOr<ChatTexts> ConvertTexts(const v1::ChatInput& chat, const ServedModel& model) {
  if (chat.messages().empty()) {
    return BadField("chat.messages", "is empty: a conversation has at least one message");
  }
  const RequestLimits& limits = model.limits;
  TLM_RETURN_IF_ERROR(CheckCount("chat.messages", chat.messages_size(), limits.max_chat_messages));
  ChatTexts texts;
  for (int i = 0; i < chat.messages_size(); ++i) {
    TLM_RETURN_IF_ERROR(ConvertMessage(chat.messages(i), fmt::format("chat.messages[{}]", i),
                                       model.chat->traits(), texts));
  }
  TLM_RETURN_IF_ERROR(ConvertTools(chat, limits, texts));
  if (texts.bytes > limits.max_text_bytes) {
    return BadField(chat.tools().empty() ? "chat.messages" : "chat",
                    "has {} bytes of text, the limit is {}", texts.bytes, limits.max_text_bytes);
  }
  for (int i = 0; i < chat.tools_size(); ++i) {
    TLM_RETURN_IF_ERROR(CheckParameters(chat.tools(i).parameters_json_schema(),
                                        fmt::format("chat.tools[{}].parameters_json_schema", i)));
  }
  return texts;
}

absl::StatusOr<nlohmann::json> ConvertArguments(const v1::ChatInput& chat,
                                                const RequestLimits& limits) {
  const auto bytes = static_cast<int64_t>(chat.template_arguments().ByteSizeLong());
  if (bytes > limits.max_text_bytes) {
    return BadField(kArguments, "is {} bytes long, the limit is {}", bytes, limits.max_text_bytes);
  }
  return ToJson(chat.template_arguments(), 1);
}

// Returns whether `path` is a field of ChatInput, such as
// "messages[2].tool_calls[0].arguments_json".
bool IsPart(std::string_view path) {
  const google::protobuf::Descriptor* parent = v1::ChatInput::descriptor();
  while (parent != nullptr) {
    const size_t end = std::min(path.find('.'), path.size());
    std::string_view index = path.substr(0, end);
    const std::string name(index.substr(0, index.find('[')));
    index.remove_prefix(name.size());
    const google::protobuf::FieldDescriptor* const field = parent->FindFieldByName(name);
    if (field == nullptr || field->is_repeated() != index.ends_with(']')) return false;
    if (index.find_first_not_of("[0123456789]") != index.npos) return false;
    if (end == path.size()) return true;
    parent = field->message_type();
    path.remove_prefix(end + 1);
  }
  return false;
}

// Blames the conversation for all errors of rendering it, too much output included. The message may
// come from a template, which can raise any text.
absl::Status RenderError(const absl::Status& status) {
  if (!absl::IsInvalidArgument(status) && !absl::IsResourceExhausted(status)) return status;
  const std::string message(status.message());
  const std::string part = message.substr(0, message.find_first_of(": "));
  if (!IsPart(part)) return WithField(InvalidArgument("chat: {}", message), "chat");
  return WithField(InvalidArgument("chat.{}", message), "chat." + part);
}

// Tools and reasoning need a format, whether or not the template shows them.
absl::Status CheckFormat(const v1::ChatInput& chat, const ChatFormat& format) {
  if (!chat.tools().empty() && format.tools == nullptr) {
    return MissingTrait("chat.tools",
                        "no tool format of this model is known: see capabilities.chat_format; the "
                        "server's flag --tool_format sets one");
  }
  if (format.reasoning != nullptr) return absl::OkStatus();
  const v1::ChatInput::Reasoning& reasoning = chat.reasoning();
  const char* const field = reasoning.enabled()             ? "chat.reasoning.enabled"
                            : reasoning.has_budget_tokens() ? "chat.reasoning.budget_tokens"
                                                            : nullptr;
  if (field == nullptr) return absl::OkStatus();
  return MissingTrait(field,
                      "no reasoning format of this model is known: see capabilities.chat_format; "
                      "the server's flag --reasoning_format sets one");
}

absl::StatusOr<std::string> RenderChat(const v1::ChatInput& chat, const ChatTexts& texts,
                                       const ServedModel& model) {
  TLM_ASSIGN_OR_RETURN(const nlohmann::json arguments, ConvertArguments(chat, model.limits));
  Conversation conversation = {.messages = texts.messages, .tools = texts.tools};
  if (chat.has_add_generation_prompt()) {
    conversation.add_generation_prompt = chat.add_generation_prompt();
  }
  if (chat.reasoning().has_enabled()) conversation.reasoning = chat.reasoning().enabled();
  absl::StatusOr<std::string> text = model.chat->Render(conversation, arguments);
  if (!text.ok()) return RenderError(text.status());
  if (static_cast<int64_t>(text->size()) > model.limits.max_text_bytes) {
    return BadField("chat", "becomes a prompt of {} bytes, the limit is {}", text->size(),
                    model.limits.max_text_bytes);
  }
  return text;
}

}  // namespace

absl::StatusOr<PromptInput> ConvertChat(const v1::ChatInput& chat,
                                        std::optional<bool> add_special_tokens,
                                        const ServedModel& model) {
  TLM_RETURN_IF_ERROR(RequireTokenizer(model, "chat", "send prompt_token_ids"));
  if (model.chat == nullptr) {
    return MissingTrait("chat", "the model has no chat template, send prompt");
  }
  TLM_RETURN_IF_ERROR(CheckFormat(chat, model.chat_format));
  TLM_ASSIGN_OR_RETURN(ChatTexts texts, ConvertTexts(chat, model));
  PromptInput prompt;
  TLM_ASSIGN_OR_RETURN(prompt.text, RenderChat(chat, texts, model));
  // The template writes the special tokens itself.
  TLM_ASSIGN_OR_RETURN(
      prompt.ids, TokenizeText(prompt.text, add_special_tokens.value_or(false), model, "chat"));
  prompt.tools = std::move(texts.tools);
  return prompt;
}

}  // namespace tlm
