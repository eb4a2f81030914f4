#include "model/chat/chat_template.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/base/regular_file.h"
#include "model/chat/template_values.h"
#include "model/jinja/globals.h"
#include "model/jinja/interpreter.h"
#include "model/jinja/json_value.h"
#include "model/jinja/limits.h"
#include "model/jinja/parser.h"

namespace tlm {
namespace {

using jinja::Heap;
using jinja::Value;
using nlohmann::json;

constexpr char kTemplateFile[] = "chat_template.jinja";
constexpr char kToolTemplateFile[] = "additional_chat_templates/tool_use.jinja";
constexpr char kConfigFile[] = "tokenizer_config.json";
// The file also lists added tokens, a few hundred bytes each.
constexpr size_t kMaxConfigBytes = size_t{16} << 20;

// A template and its origin, for messages; the origin is empty if the template is given as a text.
struct TemplateSource {
  std::string origin;
  std::string text;

  absl::StatusOr<jinja::Block> Compile() const {
    absl::StatusOr<jinja::Block> block = jinja::ParseTemplate(text);
    if (block.ok() || origin.empty()) return block;
    return WithContext(block.status(), origin);
  }
};

// The templates of a model directory among which transformers would choose.
struct TemplateSources {
  TemplateSource standard;  // named "default"
  std::optional<TemplateSource> tool_use = {};

  std::string Joined() const {
    return tool_use ? standard.text + "\n" + tool_use->text : standard.text;
  }
};
using MaybeSource = std::optional<TemplateSource>;

// Returns the text of a file; nullopt when there is no file.
absl::StatusOr<std::optional<std::string>> ReadIfPresent(const std::string& path,
                                                         size_t max_bytes) {
  absl::StatusOr<std::string> text = ReadFile(path, max_bytes);
  if (absl::IsNotFound(text.status())) return std::nullopt;
  if (!text.ok()) return text.status();
  return *std::move(text);
}

absl::StatusOr<MaybeSource> ReadTemplate(const std::string& path) {
  TLM_ASSIGN_OR_RETURN(std::optional<std::string> text,
                       ReadIfPresent(path, jinja::kMaxTemplateBytes));
  if (!text) return std::nullopt;
  return TemplateSource{path, *std::move(text)};
}

// Reads tokenizer_config.json; empty when there is no file.
absl::StatusOr<json> ReadConfig(const std::string& path) {
  TLM_ASSIGN_OR_RETURN(const std::optional<std::string> text, ReadIfPresent(path, kMaxConfigBytes));
  if (!text) return json::object();
  absl::StatusOr<json> config = ParseJson(*text);
  if (!config.ok()) return WithContext(config.status(), path);
  if (!config->is_object()) return InvalidArgument("{} is not a JSON object", path);
  return config;
}

// Returns the special tokens that a tokenizer_config.json names: "bos_token": "<s>", or an object
// whose "content" is the text.
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

// Returns the templates of `named`, a list of {name, template}.
absl::StatusOr<TemplateSources> NamedTemplates(const json& list, const std::string& origin) {
  MaybeSource standard;
  MaybeSource tool_use;
  for (const json& named : list) {
    const bool is_named = named.is_object() && named.contains("name") &&
                          named.contains("template") && named["template"].is_string();
    if (!is_named) return InvalidArgument("{} lists what has no name and template", origin);
    const TemplateSource source = {origin, named["template"].get<std::string>()};
    if (named["name"] == "default") standard = source;
    if (named["name"] == "tool_use") tool_use = source;
  }
  if (!standard) return InvalidArgument("{} lists no template of the name 'default'", origin);
  return TemplateSources{*std::move(standard), std::move(tool_use)};
}

// Returns `chat_template` of a tokenizer_config.json.
absl::StatusOr<std::optional<TemplateSources>> ConfigTemplates(const json& config,
                                                               const std::string& config_path) {
  const auto member = config.find("chat_template");
  if (member == config.end() || member->is_null()) return std::nullopt;
  const std::string origin = config_path + ": chat_template";
  if (member->is_string()) return TemplateSources{{origin, member->get<std::string>()}};
  if (!member->is_array()) return InvalidArgument("{} is neither text nor a list", origin);
  return NamedTemplates(*member, origin);
}

// Returns the templates in their own files.
absl::StatusOr<std::optional<TemplateSources>> TemplateFiles(const std::string& model_dir) {
  TLM_ASSIGN_OR_RETURN(MaybeSource standard, ReadTemplate(model_dir + "/" + kTemplateFile));
  TLM_ASSIGN_OR_RETURN(MaybeSource tool_use, ReadTemplate(model_dir + "/" + kToolTemplateFile));
  if (!standard && !tool_use) return std::nullopt;
  if (!standard) {
    return InvalidArgument("{}: is there without a {}", tool_use->origin, kTemplateFile);
  }
  return TemplateSources{*std::move(standard), std::move(tool_use)};
}

// The limit of steps for a rendering that only probes the template.
constexpr int64_t kProbeSteps = 100'000;

class CompiledTemplate final : public ChatTemplate {
 public:
  // Compiles the templates; INVALID_ARGUMENT names the faulty one by its origin.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Compile(const TemplateSources& sources,
                                                               json variables, Clock* clock) {
    auto result = std::unique_ptr<CompiledTemplate>(
        new CompiledTemplate(sources.Joined(), std::move(variables), clock));
    TLM_ASSIGN_OR_RETURN(result->default_, sources.standard.Compile());
    if (sources.tool_use) {
      TLM_ASSIGN_OR_RETURN(result->tool_use_, sources.tool_use->Compile());
    }
    const auto probe = [&](const Conversation& conversation, const json& arguments,
                           const ChatTemplateTraits& traits) {
      return result->RenderAs(conversation, arguments, traits, kProbeSteps);
    };
    result->traits_ = FindTraits(probe, result->source_);
    return result;
  }

  absl::StatusOr<std::string> Render(const Conversation& conversation,
                                     const json& arguments) const override {
    return RenderAs(conversation, arguments, traits_, jinja::kMaxSteps);
  }

  const ChatTemplateTraits& traits() const override { return traits_; }
  std::string_view source() const override { return source_; }

 private:
  using Variables = std::vector<std::pair<std::string, Value>>;

  CompiledTemplate(std::string source, json variables, Clock* clock)
      : source_(std::move(source)), variables_(std::move(variables)), clock_(clock) {}

  absl::StatusOr<std::string> RenderAs(const Conversation& conversation, const json& arguments,
                                       const ChatTemplateTraits& traits, int64_t max_steps) const {
    TLM_RETURN_IF_ERROR(CheckArguments(conversation, arguments, traits));
    Heap heap(max_steps);
    TLM_ASSIGN_OR_RETURN(const Variables variables,
                         MakeVariables(&heap, conversation, arguments, traits));
    const bool with_tools = tool_use_ && !conversation.tools.empty();
    absl::StatusOr<std::string> text =
        jinja::Interpreter(&heap, variables).Render(with_tools ? *tool_use_ : default_);
    // Drops the payload that marks exceptions of the template itself.
    if (!text.ok()) return absl::Status(text.status().code(), text.status().message());
    return text;
  }

  absl::Status CheckArguments(const Conversation& conversation, const json& arguments,
                              const ChatTemplateTraits& traits) const {
    if (arguments.is_null()) return absl::OkStatus();
    if (!arguments.is_object()) return InvalidArgument("template arguments are not an object");
    for (const auto& [name, value] : arguments.items()) {
      if (name == "messages" || name == "tools" || name == "add_generation_prompt" ||
          variables_.contains(name)) {
        return InvalidArgument("template argument {} would replace the server's own", Quoted(name));
      }
      if (conversation.reasoning && name == traits.reasoning_switch &&
          value != *conversation.reasoning) {
        return InvalidArgument("template argument {} contradicts reasoning, which is {}",
                               Quoted(name), *conversation.reasoning);
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Variables> MakeVariables(Heap* heap, const Conversation& conversation,
                                          const json& arguments,
                                          const ChatTemplateTraits& traits) const {
    TLM_ASSIGN_OR_RETURN(Variables variables, jinja::MakeGlobals(heap, clock_));
    // Hugging Face's renderer always defines it.
    variables.emplace_back("documents", jinja::None{});
    if (conversation.reasoning && !traits.reasoning_switch.empty()) {
      variables.emplace_back(traits.reasoning_switch, *conversation.reasoning);
    }
    for (const json* const source : {&variables_, &arguments}) {
      if (source->is_null()) continue;
      for (const auto& [name, member] : source->items()) {
        absl::StatusOr<Value> value = jinja::FromJson(heap, member);
        if (!value.ok()) return WithContext(value.status(), "template argument " + Quoted(name));
        variables.emplace_back(name, *std::move(value));
      }
    }
    TLM_ASSIGN_OR_RETURN(Value messages, MessagesValue(heap, conversation.messages, traits));
    TLM_ASSIGN_OR_RETURN(Value tools, ToolsValue(heap, conversation.tools));
    variables.emplace_back("messages", std::move(messages));
    variables.emplace_back("tools", std::move(tools));
    variables.emplace_back("add_generation_prompt", conversation.add_generation_prompt);
    return variables;
  }

  const std::string source_;
  const json variables_;
  Clock* const clock_;
  jinja::Block default_;
  std::optional<jinja::Block> tool_use_;  // for conversations with tools
  ChatTemplateTraits traits_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Load(const std::string& model_dir) {
  const std::string config_path = model_dir + "/" + kConfigFile;
  TLM_ASSIGN_OR_RETURN(const json config, ReadConfig(config_path));
  TLM_ASSIGN_OR_RETURN(std::optional<TemplateSources> sources, TemplateFiles(model_dir));
  if (!sources) {
    TLM_ASSIGN_OR_RETURN(sources, ConfigTemplates(config, config_path));
  }
  if (!sources) return nullptr;
  return CompiledTemplate::Compile(*sources, SpecialTokens(config), Clock::Wall());
}

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Parse(std::string_view source,
                                                                  const json& variables,
                                                                  Clock* clock) {
  if (!variables.is_object()) {
    return InvalidArgument("the template's variables are not an object");
  }
  return CompiledTemplate::Compile({{"", std::string(source)}}, variables, clock);
}

}  // namespace tlm
