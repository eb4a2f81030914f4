#include "model/chat/chat_template.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "model/base/clock.h"
#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/base/regular_file.h"
#include "model/chat/compiled_template.h"
#include "model/jinja/limits.h"

namespace tlm {
namespace {

using nlohmann::json;

constexpr char kTemplateFile[] = "chat_template.jinja";
constexpr char kConfigFile[] = "tokenizer_config.json";

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

}  // namespace

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Load(const std::string& model_dir) {
  const std::string config_path = model_dir + "/" + kConfigFile;
  TLM_ASSIGN_OR_RETURN(const std::optional<std::string> config_text,
                       ReadIfPresent(config_path, jinja::kMaxTokenizerConfigBytes));
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
                                                                  const json& variables) {
  return CompiledTemplate::Create(source, variables, Clock::Wall());
}

}  // namespace tlm
