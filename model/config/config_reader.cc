#include "model/config/config_reader.h"

#include <cstddef>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/base/mapped_file.h"
#include "model/config/families.h"
#include "model/config/json_fields.h"

namespace tlm {
namespace {

constexpr size_t kMaxFileBytes = size_t{16} << 20;

absl::StatusOr<nlohmann::json> ParseObject(std::string_view text) {
  TLM_ASSIGN_OR_RETURN(nlohmann::json value, ParseJson(text));
  if (!value.is_object()) return InvalidArgument("is {}, not a JSON object", value.type_name());
  return value;
}

absl::StatusOr<const Family*> FindFamily(const JsonFields& fields) {
  TLM_ASSIGN_OR_RETURN(const std::optional<std::string> named, fields.String("model_type"));
  const bool course_keys =
      fields.Has("d_model") || fields.Has("num_layers") || fields.Has("context_length");
  if (!named.has_value() && !course_keys) return InvalidArgument("model_type is missing");
  const std::string model_type = named.value_or("cs336");
  std::string supported;
  for (const Family& family : Families()) {
    if (family.model_type == model_type) return &family;
    supported += supported.empty() ? "" : ", ";
    supported += family.model_type;
  }
  return Unimplemented("model_type is {}, supported are {}", Quoted(model_type), supported);
}

// The configuration before Validate().
absl::StatusOr<ModelConfig> ParseUnchecked(std::string_view text) {
  TLM_ASSIGN_OR_RETURN(const nlohmann::json object, ParseObject(text));
  const JsonFields fields(object);
  TLM_ASSIGN_OR_RETURN(const Family* const family, FindFamily(fields));
  ModelConfig config;
  config.model_type = family->model_type;
  config.naming = family->naming;
  TLM_ASSIGN_OR_RETURN(const std::vector<std::string> architectures,
                       fields.Strings("architectures", 64));
  config.architecture = architectures.empty() ? family->architecture : architectures.front();
  TLM_RETURN_IF_ERROR(family->read(fields, &config));
  return config;
}

absl::Status ApplyGenerationConfig(std::string_view text, ModelConfig* config) {
  TLM_ASSIGN_OR_RETURN(const nlohmann::json object, ParseObject(text));
  TLM_ASSIGN_OR_RETURN(std::optional<std::vector<int64_t>> eos,
                       JsonFields(object).Integers("eos_token_id", ConfigLimits::kEosTokens));
  if (eos.has_value()) config->eos_token_ids = *std::move(eos);
  return Validate(*config);
}

absl::StatusOr<ModelConfig> ReadConfigFile(const std::string& path) {
  TLM_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxFileBytes));
  absl::StatusOr<ModelConfig> config = ParseModelConfig(text);
  if (!config.ok()) return WithContext(config.status(), path);
  return config;
}

}  // namespace

absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view config_json) {
  TLM_ASSIGN_OR_RETURN(ModelConfig config, ParseUnchecked(config_json));
  TLM_RETURN_IF_ERROR(Validate(config));
  return config;
}

absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& model_dir) {
  const std::filesystem::path dir(model_dir);
  absl::StatusOr<ModelConfig> config = ReadConfigFile(dir / "config.json");
  if (absl::IsNotFound(config.status())) config = ReadConfigFile(dir / "model_config.json");
  if (absl::IsNotFound(config.status())) {
    return NotFound("{}: holds neither config.json nor model_config.json", model_dir);
  }
  TLM_RETURN_IF_ERROR(config.status());

  const std::string generation_path = dir / "generation_config.json";
  const absl::StatusOr<std::string> generation = ReadFile(generation_path, kMaxFileBytes);
  if (absl::IsNotFound(generation.status())) return config;
  TLM_RETURN_IF_ERROR(generation.status());
  TLM_RETURN_IF_ERROR(WithContext(ApplyGenerationConfig(*generation, &*config), generation_path));
  return config;
}

}  // namespace tlm
