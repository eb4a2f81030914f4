#include "model/chat/chat_template.h"

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/base/regular_file.h"
#include "model/jinja/globals.h"
#include "model/jinja/interpreter.h"
#include "model/jinja/limits.h"
#include "model/jinja/parser.h"
#include "model/text/utf8.h"

namespace tlm {
namespace {

using jinja::Heap;
using jinja::MakeConstantText;
using jinja::Value;
using nlohmann::json;

constexpr char kTemplateFile[] = "chat_template.jinja";
constexpr char kConfigFile[] = "tokenizer_config.json";
// Besides a template it lists added tokens, a few hundred bytes each.
constexpr size_t kMaxConfigBytes = size_t{16} << 20;

// The text of a file; nullopt when there is none.
absl::StatusOr<std::optional<std::string>> ReadIfPresent(const std::string& path,
                                                         size_t max_bytes) {
  absl::StatusOr<std::string> text = ReadFile(path, max_bytes);
  if (absl::IsNotFound(text.status())) return std::nullopt;
  if (!text.ok()) return text.status();
  return *std::move(text);
}

// The special tokens that a tokenizer_config.json names: "bos_token": "<s>", or an object whose
// "content" is the text.
json SpecialTokens(const json& config) {
  json tokens = json::object();
  for (const auto& [name, value] : config.items()) {
    if (!name.ends_with("_token")) continue;
    if (value.is_string()) {
      tokens[name] = value;
    } else if (value.is_object() && value.contains("content") && value["content"].is_string()) {
      tokens[name] = value["content"];
    }
  }
  return tokens;
}

// `chat_template` of a tokenizer_config.json: a text, or a list of {name, template}.
absl::StatusOr<std::optional<std::string>> TemplateOf(const json& config) {
  const auto member = config.find("chat_template");
  if (member == config.end() || member->is_null()) return std::nullopt;
  if (member->is_string()) return member->get<std::string>();
  if (!member->is_array()) return InvalidArgument("chat_template is neither text nor a list");
  for (const json& named : *member) {
    const bool is_named = named.is_object() && named.contains("name") &&
                          named.contains("template") && named["template"].is_string();
    if (!is_named) return InvalidArgument("chat_template lists what has no name and template");
    if (named["name"] == "default") return named["template"].get<std::string>();
  }
  return InvalidArgument("chat_template lists no template of the name 'default'");
}

// INVALID_ARGUMENT when it is not valid UTF-8.
absl::StatusOr<Value> MakeText(Heap* heap, const std::string& text) {
  if (!IsValidUtf8(text)) return InvalidArgument("a text is not valid UTF-8");
  return heap->MakeText(text);
}

// Objects have their keys in alphabetical order, since nlohmann::json keeps no other. Whole numbers
// are ints. INVALID_ARGUMENT for text that is not UTF-8 and integers beyond 64 bits.
absl::StatusOr<Value> FromJson(Heap* heap, const json& source);

absl::StatusOr<Value> FromArray(Heap* heap, const json& source) {
  TLM_RETURN_IF_ERROR(heap->CheckRoom(source.size() * sizeof(Value)));
  std::vector<Value> items;
  items.reserve(source.size());
  for (const json& element : source) {
    TLM_ASSIGN_OR_RETURN(Value item, FromJson(heap, element));
    items.push_back(std::move(item));
  }
  return heap->MakeList(std::move(items));
}

absl::StatusOr<Value> FromObject(Heap* heap, const json& source) {
  TLM_RETURN_IF_ERROR(heap->CheckRoom(source.size() * 2 * sizeof(Value)));
  jinja::Dict::Members members;
  members.reserve(source.size());
  for (const auto& [name, element] : source.items()) {
    TLM_ASSIGN_OR_RETURN(Value key, MakeText(heap, name));
    TLM_ASSIGN_OR_RETURN(Value value, FromJson(heap, element));
    members.emplace_back(std::move(key), std::move(value));
  }
  return heap->MakeDict(std::move(members));
}

absl::StatusOr<Value> FromJson(Heap* heap, const json& source) {
  jinja::StackLevel level(heap);
  TLM_RETURN_IF_ERROR(level.Enter());
  switch (source.type()) {
    case json::value_t::null:
      return jinja::None{};
    case json::value_t::boolean:
      return source.get<bool>();
    case json::value_t::number_integer:
      return source.get<int64_t>();
    case json::value_t::number_unsigned: {
      const auto value = source.get<uint64_t>();
      constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
      if (value > kMax) return InvalidArgument("integer {}, the limit is {}", value, kMax);
      return static_cast<int64_t>(value);
    }
    case json::value_t::number_float:
      return source.get<double>();
    case json::value_t::string:
      return MakeText(heap, source.get_ref<const std::string&>());
    case json::value_t::array:
      return FromArray(heap, source);
    case json::value_t::object:
      return FromObject(heap, source);
    default:
      return InvalidArgument("a JSON value of no type");
  }
}

absl::StatusOr<Value> MessageValue(Heap* heap, const ChatMessage& message) {
  TLM_ASSIGN_OR_RETURN(Value role, MakeText(heap, message.role));
  TLM_ASSIGN_OR_RETURN(Value content, MakeText(heap, message.content));
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

class CompiledTemplate final : public ChatTemplate {
 public:
  CompiledTemplate(jinja::Block block, json variables, Clock* clock)
      : block_(std::move(block)), variables_(std::move(variables)), clock_(clock) {}

  absl::StatusOr<std::string> Render(std::span<const ChatMessage> messages,
                                     bool add_generation_prompt,
                                     const json& arguments) const override {
    TLM_RETURN_IF_ERROR(CheckArguments(arguments));
    Heap heap;
    TLM_ASSIGN_OR_RETURN(const Variables variables,
                         MakeVariables(&heap, messages, add_generation_prompt, arguments));
    absl::StatusOr<std::string> text = jinja::Interpreter(&heap, variables).Render(block_);
    // Without the mark of what the template raises itself.
    if (!text.ok()) return absl::Status(text.status().code(), text.status().message());
    return text;
  }

 private:
  using Variables = std::vector<std::pair<std::string, Value>>;

  absl::Status CheckArguments(const json& arguments) const {
    if (arguments.is_null()) return absl::OkStatus();
    if (!arguments.is_object()) return InvalidArgument("template arguments are not an object");
    for (const auto& [name, value] : arguments.items()) {
      if (name == "messages" || name == "add_generation_prompt" || variables_.contains(name)) {
        return InvalidArgument("template argument {} would replace the server's own", Quoted(name));
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Variables> MakeVariables(Heap* heap, std::span<const ChatMessage> messages,
                                          bool add_generation_prompt, const json& arguments) const {
    TLM_ASSIGN_OR_RETURN(Variables variables, jinja::MakeGlobals(heap, clock_));
    // Hugging Face's renderer defines these two in any case.
    variables.emplace_back("tools", jinja::None{});
    variables.emplace_back("documents", jinja::None{});
    for (const json* const source : {&variables_, &arguments}) {
      if (source->is_null()) continue;
      for (const auto& [name, member] : source->items()) {
        absl::StatusOr<Value> value = FromJson(heap, member);
        if (!value.ok()) return WithContext(value.status(), "template argument " + Quoted(name));
        variables.emplace_back(name, *std::move(value));
      }
    }
    TLM_ASSIGN_OR_RETURN(Value list, MessagesValue(heap, messages));
    variables.emplace_back("messages", std::move(list));
    variables.emplace_back("add_generation_prompt", add_generation_prompt);
    return variables;
  }

  const jinja::Block block_;
  const json variables_;
  Clock* const clock_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Load(const std::string& model_dir) {
  const std::string config_path = model_dir + "/" + kConfigFile;
  TLM_ASSIGN_OR_RETURN(const std::optional<std::string> config_text,
                       ReadIfPresent(config_path, kMaxConfigBytes));
  json config = json::object();
  if (config_text) {
    absl::StatusOr<json> parsed = ParseJson(*config_text);
    if (!parsed.ok()) return WithContext(parsed.status(), config_path);
    if (!parsed->is_object()) return InvalidArgument("{} is not a JSON object", config_path);
    config = *std::move(parsed);
  }
  const std::string template_path = model_dir + "/" + kTemplateFile;
  TLM_ASSIGN_OR_RETURN(std::optional<std::string> source,
                       ReadIfPresent(template_path, jinja::kMaxTemplateBytes));
  const std::string origin = source ? template_path : config_path + ": chat_template";
  if (!source) {
    absl::StatusOr<std::optional<std::string>> named = TemplateOf(config);
    if (!named.ok()) return WithContext(named.status(), config_path);
    source = *std::move(named);
  }
  if (!source) return nullptr;
  absl::StatusOr<std::unique_ptr<ChatTemplate>> result = Parse(*source, SpecialTokens(config));
  if (!result.ok()) return WithContext(result.status(), origin);
  return result;
}

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Parse(std::string_view source,
                                                                  const json& variables,
                                                                  Clock* clock) {
  if (!variables.is_object()) {
    return InvalidArgument("the template's variables are not an object");
  }
  TLM_ASSIGN_OR_RETURN(jinja::Block block, jinja::ParseTemplate(source));
  return std::make_unique<CompiledTemplate>(std::move(block), variables, clock);
}

}  // namespace tlm
