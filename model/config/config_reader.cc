#include "model/config/config_reader.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/base/json_fields.h"
#include "model/config/families.h"
#include "model/config/json_file.h"

namespace tlm {
namespace {

std::string SupportedFamilies() {
  std::string names;
  for (const Family& family : Families()) {
    names += names.empty() ? "" : ", ";
    names += family.model_type;
  }
  return names;
}

// The courses' files name no model_type.
absl::StatusOr<const Family*> FamilyOf(const JsonFields& fields) {
  TLM_ASSIGN_OR_RETURN(std::optional<std::string> model_type, fields.String("model_type"));
  if (!model_type.has_value() && fields.Has("d_hidden")) model_type = "qwen3_mha";
  for (const char* key : {"d_model", "num_layers", "context_length"}) {
    if (!model_type.has_value() && fields.Has(key)) model_type = "cs336";
  }
  if (!model_type.has_value()) return InvalidArgument("model_type is missing");
  const Family* const family = FindFamily(*model_type);
  if (family != nullptr) return family;
  return Unimplemented("model_type is {}, supported are {}", Quoted(*model_type),
                       SupportedFamilies());
}

// A tiny model of a family, made for a test or a course, may be saved with the family's default
// ids, which are larger than its vocabulary. It can never produce them.
bool IsDefaultOutside(int64_t id, const std::optional<int64_t>& family_id,
                      const ModelConfig& config) {
  return id == family_id && id >= config.vocab_size;
}

// A missing `key` means the family's default, null means no id.
absl::Status ReadTokenIds(const JsonFields& fields, const Family& family, ModelConfig* config) {
  TLM_ASSIGN_OR_RETURN(std::optional<std::vector<int64_t>> eos,
                       fields.Integers("eos_token_id", ConfigLimits::kEosTokens));
  if (!eos.has_value() && family.eos_token_id.has_value() && !fields.IsNull("eos_token_id")) {
    eos = {*family.eos_token_id};
  }
  config->eos_token_ids = std::move(eos).value_or(std::vector<int64_t>());
  std::erase_if(config->eos_token_ids,
                [&](int64_t id) { return IsDefaultOutside(id, family.eos_token_id, *config); });
  TLM_ASSIGN_OR_RETURN(std::optional<int64_t> bos, fields.Integer("bos_token_id"));
  if (!bos.has_value() && !fields.IsNull("bos_token_id")) bos = family.bos_token_id;
  if (bos.has_value() && IsDefaultOutside(*bos, family.bos_token_id, *config)) bos.reset();
  config->bos_token_id = bos;
  return absl::OkStatus();
}

// Refuses a type that no supported file has.
absl::StatusOr<std::string> ReadWeightsDType(const JsonFields& fields) {
  constexpr std::pair<std::string_view, const char*> kNames[] = {
      {"auto", "float32"},  {"float64", "float32"}, {"double", "float32"}, {"float32", "float32"},
      {"float", "float32"}, {"float16", "float16"}, {"half", "float16"},   {"bfloat16", "bfloat16"},
  };
  std::string dtype = "float32";
  for (const char* const key : {"dtype", "torch_dtype"}) {  // the last one counts
    TLM_ASSIGN_OR_RETURN(const std::optional<std::string> text, fields.String(key));
    if (!text.has_value()) continue;
    std::string_view name = *text;
    if (name.starts_with("torch.")) name.remove_prefix(std::string_view("torch.").size());
    const auto* const known =
        std::ranges::find(kNames, name, [](auto& pair) { return pair.first; });
    if (known == std::end(kNames)) {
      return Unimplemented("{} is {}, supported are float32, bfloat16, float16 and float64", key,
                           Quoted(*text));
    }
    dtype = known->second;
  }
  return dtype;
}

absl::StatusOr<ModelConfig> ParseObject(const nlohmann::json& object) {
  const JsonFields fields(object);
  ModelConfig config;
  TLM_ASSIGN_OR_RETURN(config.weights_dtype, ReadWeightsDType(fields));
  TLM_ASSIGN_OR_RETURN(const Family* const family, FamilyOf(fields));
  config.model_type = family->model_type;
  config.naming = family->naming;
  TLM_ASSIGN_OR_RETURN(const std::vector<std::string> architectures,
                       fields.Strings("architectures", 64));
  config.architecture = architectures.empty() ? family->architecture : architectures.front();
  TLM_RETURN_IF_ERROR(family->read(fields, &config));
  TLM_RETURN_IF_ERROR(ReadTokenIds(fields, *family, &config));
  TLM_RETURN_IF_ERROR(Validate(config));
  return config;
}

absl::Status ApplyGenerationConfig(const nlohmann::json& object, ModelConfig* config) {
  TLM_ASSIGN_OR_RETURN(std::optional<std::vector<int64_t>> eos,
                       JsonFields(object).Integers("eos_token_id", ConfigLimits::kEosTokens));
  if (!eos.has_value()) return absl::OkStatus();
  config->eos_token_ids = *std::move(eos);
  const Family* const family = FindFamily(config->model_type);
  std::erase_if(config->eos_token_ids,
                [&](int64_t id) { return IsDefaultOutside(id, family->eos_token_id, *config); });
  return Validate(*config);
}

absl::StatusOr<ModelConfig> ReadConfigFile(const std::string& path) {
  TLM_ASSIGN_OR_RETURN(const nlohmann::json object, ReadJsonObject(path));
  absl::StatusOr<ModelConfig> config = ParseObject(object);
  if (!config.ok()) return WithContext(config.status(), path);
  return config;
}

}  // namespace

absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view config_json) {
  TLM_ASSIGN_OR_RETURN(const nlohmann::json object, ParseJsonObject(config_json));
  return ParseObject(object);
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
  const absl::StatusOr<nlohmann::json> generation = ReadJsonObject(generation_path);
  if (absl::IsNotFound(generation.status())) return config;
  TLM_RETURN_IF_ERROR(generation.status());
  TLM_RETURN_IF_ERROR(WithContext(ApplyGenerationConfig(*generation, &*config), generation_path));
  return config;
}

}  // namespace tlm
