#include "model/config/generation_config.h"

#include <algorithm>
#include <filesystem>
#include <limits>

#include "model/base/errors.h"
#include "model/base/json_fields.h"
#include "model/config/json_file.h"

namespace tlm {
namespace {

struct Range {
  double low;
  bool low_belongs;
  double high;
};
constexpr double kLargest = std::numeric_limits<float>::max();
constexpr Range kNotNegative = {0, true, kLargest};
constexpr Range kPositive = {0, false, kLargest};
constexpr Range kProbability = {0, true, 1};
constexpr Range kPositiveProbability = {0, false, 1};

absl::StatusOr<std::optional<float>> InRange(const std::string& key, std::optional<double> value,
                                             const Range& range) {
  if (!value.has_value()) return std::optional<float>();
  const bool in_range = *value >= range.low && *value <= range.high;
  // A number too small for a float has become 0.
  if (in_range && (range.low_belongs || static_cast<float>(*value) != range.low)) {
    return std::optional<float>(static_cast<float>(*value));
  }
  return InvalidArgument("{} is {}, it must be {} {} and at most {}", key, *value,
                         range.low_belongs ? "at least" : "above", range.low, range.high);
}

absl::StatusOr<std::optional<uint32_t>> TopK(const std::string& key, std::optional<int64_t> value) {
  if (!value.has_value()) return std::optional<uint32_t>();
  constexpr int64_t kLimit = std::numeric_limits<uint32_t>::max();
  if (*value < 0 || *value > kLimit) {
    return InvalidArgument("{} is {}, it must be between 0 and {}", key, *value, kLimit);
  }
  return std::optional<uint32_t>(static_cast<uint32_t>(*value));
}

absl::StatusOr<std::optional<float>> ReadFloat(const JsonFields& fields, const char* key,
                                               const Range& range) {
  TLM_ASSIGN_OR_RETURN(const std::optional<double> value, fields.Number(key));
  return InRange(key, value, range);
}

absl::StatusOr<std::optional<float>> ReadFloat(const GgufMetadata& metadata, const char* key,
                                               const Range& range) {
  TLM_ASSIGN_OR_RETURN(const std::optional<double> value, metadata.Number(key));
  return InRange(fmt::format("key '{}'", key), value, range);
}

absl::StatusOr<GenerationDefaults> ReadFields(const JsonFields& fields) {
  GenerationDefaults defaults;
  TLM_ASSIGN_OR_RETURN(defaults.temperature, ReadFloat(fields, "temperature", kNotNegative));
  TLM_ASSIGN_OR_RETURN(const std::optional<int64_t> top_k, fields.Integer("top_k"));
  TLM_ASSIGN_OR_RETURN(defaults.top_k, TopK("top_k", top_k));
  TLM_ASSIGN_OR_RETURN(defaults.top_p, ReadFloat(fields, "top_p", kPositiveProbability));
  TLM_ASSIGN_OR_RETURN(defaults.min_p, ReadFloat(fields, "min_p", kProbability));
  TLM_ASSIGN_OR_RETURN(defaults.typical_p, ReadFloat(fields, "typical_p", kPositiveProbability));
  TLM_ASSIGN_OR_RETURN(defaults.repetition_penalty,
                       ReadFloat(fields, "repetition_penalty", kPositive));
  TLM_ASSIGN_OR_RETURN(const std::optional<bool> do_sample, fields.Bool("do_sample"));
  if (do_sample.has_value() && !*do_sample) defaults.temperature = 0.0f;
  return defaults;
}

}  // namespace

absl::StatusOr<GenerationDefaults> ReadGenerationDefaults(const std::string& model_dir) {
  const std::string path = std::filesystem::path(model_dir) / "generation_config.json";
  const absl::StatusOr<nlohmann::json> object = ReadJsonObject(path);
  if (absl::IsNotFound(object.status())) return GenerationDefaults();
  TLM_RETURN_IF_ERROR(object.status());
  absl::StatusOr<GenerationDefaults> defaults = ReadFields(JsonFields(*object));
  if (!defaults.ok()) return WithContext(defaults.status(), path);
  return defaults;
}

absl::StatusOr<GenerationDefaults> ReadGgufGenerationDefaults(const GgufMetadata& metadata) {
  GenerationDefaults defaults;
  TLM_ASSIGN_OR_RETURN(defaults.temperature,
                       ReadFloat(metadata, "general.sampling.temp", kNotNegative));
  constexpr char kTopK[] = "general.sampling.top_k";
  TLM_ASSIGN_OR_RETURN(std::optional<int64_t> top_k, metadata.Integer(kTopK));
  if (top_k.has_value()) top_k = std::max<int64_t>(*top_k, 0);
  TLM_ASSIGN_OR_RETURN(defaults.top_k, TopK(fmt::format("key '{}'", kTopK), top_k));
  TLM_ASSIGN_OR_RETURN(defaults.top_p,
                       ReadFloat(metadata, "general.sampling.top_p", kPositiveProbability));
  TLM_ASSIGN_OR_RETURN(defaults.min_p, ReadFloat(metadata, "general.sampling.min_p", kProbability));
  TLM_ASSIGN_OR_RETURN(const std::optional<int64_t> window,
                       metadata.Integer("general.sampling.penalty_last_n"));
  if (window != -1) return defaults;
  TLM_ASSIGN_OR_RETURN(defaults.repetition_penalty,
                       ReadFloat(metadata, "general.sampling.penalty_repeat", kPositive));
  return defaults;
}

}  // namespace tlm
