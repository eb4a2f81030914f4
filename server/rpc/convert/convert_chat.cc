#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "model/base/json.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/field_error.h"

namespace tlm {
namespace {

constexpr char kArguments[] = "chat.template_arguments";
constexpr int kMaxArgumentDepth = 16;
// Beyond, a double no longer tells neighbouring integers apart.
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

// Protobuf knows one kind of number; templates count with whole ones.
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

absl::StatusOr<std::vector<ChatMessage>> ConvertMessages(const v1::ChatInput& chat,
                                                         const RequestLimits& limits) {
  if (chat.messages().empty()) {
    return BadField("chat.messages", "is empty: a conversation has at least one message");
  }
  TLM_RETURN_IF_ERROR(CheckCount("chat.messages", chat.messages_size(), limits.max_chat_messages));
  std::vector<ChatMessage> messages;
  int64_t bytes = 0;
  for (int i = 0; i < chat.messages_size(); ++i) {
    const v1::ChatInput::Message& message = chat.messages(i);
    if (message.role().empty()) {
      return BadField(fmt::format("chat.messages[{}].role", i), "is empty");
    }
    bytes += static_cast<int64_t>(message.role().size() + message.content().size());
    messages.push_back({message.role(), message.content()});
  }
  if (bytes > limits.max_text_bytes) {
    return BadField("chat.messages", "has {} bytes of text, the limit is {}", bytes,
                    limits.max_text_bytes);
  }
  return messages;
}

absl::StatusOr<nlohmann::json> ConvertArguments(const v1::ChatInput& chat,
                                                const RequestLimits& limits) {
  const auto bytes = static_cast<int64_t>(chat.template_arguments().ByteSizeLong());
  if (bytes > limits.max_text_bytes) {
    return BadField(kArguments, "is {} bytes long, the limit is {}", bytes, limits.max_text_bytes);
  }
  return ToJson(chat.template_arguments(), 1);
}

// What a template makes of a conversation is the conversation's fault, too much of it included.
absl::Status RenderError(const absl::Status& status) {
  const absl::string_view message = status.message();
  if (!absl::IsInvalidArgument(status) && !absl::IsResourceExhausted(status)) return status;
  return WithField(InvalidArgument("chat: {}", std::string_view(message.data(), message.size())),
                   "chat");
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> ConvertChat(const v1::ChatInput& chat,
                                                 std::optional<bool> add_special_tokens,
                                                 const ServedModel& model) {
  TLM_RETURN_IF_ERROR(RequireTokenizer(model, "chat", "send prompt_token_ids"));
  if (model.chat == nullptr) {
    return WithField(FailedPrecondition("chat: the model has no chat template, send prompt"),
                     "chat");
  }
  TLM_ASSIGN_OR_RETURN(const std::vector<ChatMessage> messages,
                       ConvertMessages(chat, model.limits));
  TLM_ASSIGN_OR_RETURN(const nlohmann::json arguments, ConvertArguments(chat, model.limits));
  const bool open = !chat.has_add_generation_prompt() || chat.add_generation_prompt();
  const absl::StatusOr<std::string> text = model.chat->Render(messages, open, arguments);
  if (!text.ok()) return RenderError(text.status());
  if (static_cast<int64_t>(text->size()) > model.limits.max_text_bytes) {
    return BadField("chat", "becomes a prompt of {} bytes, the limit is {}", text->size(),
                    model.limits.max_text_bytes);
  }
  // The template writes the special tokens itself.
  return TokenizeText(*text, add_special_tokens.value_or(false), model, "chat");
}

}  // namespace tlm
