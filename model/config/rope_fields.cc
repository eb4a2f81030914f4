#include "model/config/rope_fields.h"

#include <cmath>
#include <string>
#include <vector>

#include "model/base/errors.h"
#include "model/base/json.h"

namespace tlm {
namespace {

constexpr const char* kOuterKeys[] = {"rope_theta", "rope_scaling", "rope_parameters",
                                      "partial_rotary_factor", "original_max_position_embeddings"};
constexpr const char* kObjectKeys[] = {"rope_type",        "type",
                                       "rope_theta",       "partial_rotary_factor",
                                       "factor",           "low_freq_factor",
                                       "high_freq_factor", "original_max_position_embeddings",
                                       "beta_fast",        "beta_slow",
                                       "attention_factor", "mscale",
                                       "mscale_all_dim",   "truncate",
                                       "full_attention",   "sliding_attention"};

absl::Status RefusePartialRotation(const JsonFields& fields) {
  TLM_ASSIGN_OR_RETURN(const std::optional<double> share, fields.Number("partial_rotary_factor"));
  if (share.value_or(1.0) == 1.0) return absl::OkStatus();
  return Unimplemented("{}partial_rotary_factor is {}, only 1 is supported", fields.prefix(),
                       *share);
}

absl::StatusOr<double> Required(const JsonFields& fields, const char* key) {
  TLM_ASSIGN_OR_RETURN(const std::optional<double> value, fields.Number(key));
  if (!value.has_value()) return InvalidArgument("{}{} is missing", fields.prefix(), key);
  return *value;
}

// Returns the context of the original training; a key outside the object takes precedence.
absl::StatusOr<int64_t> OriginalContext(const JsonFields& outer, const JsonFields& rope,
                                        int64_t context_length) {
  constexpr char kKey[] = "original_max_position_embeddings";
  TLM_ASSIGN_OR_RETURN(const int64_t inside,
                       rope.Dimension(kKey, ConfigLimits::kContextLength, context_length));
  return outer.Dimension(kKey, ConfigLimits::kContextLength, inside);
}

absl::Status ReadLlama3(const JsonFields& rope, RopeScaling* scaling) {
  scaling->kind = RopeScaling::Kind::kLlama3;
  TLM_ASSIGN_OR_RETURN(scaling->factor, Required(rope, "factor"));
  TLM_ASSIGN_OR_RETURN(scaling->low_freq_factor, Required(rope, "low_freq_factor"));
  TLM_ASSIGN_OR_RETURN(scaling->high_freq_factor, Required(rope, "high_freq_factor"));
  return absl::OkStatus();
}

// Returns YaRN's temperature (Peng et al. 2023, section 3.4), with the weight that DeepSeek adds.
double YarnMagnitude(double factor, double weight) {
  return factor <= 1 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0;
}

absl::Status ReadYarn(const JsonFields& rope, int64_t context_length, RopeScaling* scaling) {
  scaling->kind = RopeScaling::Kind::kYarn;
  TLM_ASSIGN_OR_RETURN(const std::optional<double> factor, rope.Number("factor"));
  scaling->factor = factor.value_or(static_cast<double>(context_length) /
                                    static_cast<double>(scaling->original_context_length));
  TLM_ASSIGN_OR_RETURN(const std::optional<double> beta_fast, rope.Number("beta_fast"));
  TLM_ASSIGN_OR_RETURN(const std::optional<double> beta_slow, rope.Number("beta_slow"));
  TLM_ASSIGN_OR_RETURN(const std::optional<bool> truncate, rope.Bool("truncate"));
  scaling->beta_fast = beta_fast.value_or(32.0);
  scaling->beta_slow = beta_slow.value_or(1.0);
  scaling->truncate = truncate.value_or(true);
  TLM_ASSIGN_OR_RETURN(const std::optional<double> given, rope.Number("attention_factor"));
  TLM_ASSIGN_OR_RETURN(const std::optional<double> mscale, rope.Number("mscale"));
  TLM_ASSIGN_OR_RETURN(const std::optional<double> all_dim, rope.Number("mscale_all_dim"));
  if (given.has_value()) {
    scaling->attention_factor = *given;
  } else if (mscale.value_or(0) != 0 && all_dim.value_or(0) != 0) {
    scaling->attention_factor =
        YarnMagnitude(scaling->factor, *mscale) / YarnMagnitude(scaling->factor, *all_dim);
  } else {
    scaling->attention_factor = YarnMagnitude(scaling->factor, 1.0);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadType(const JsonFields& rope) {
  TLM_ASSIGN_OR_RETURN(std::optional<std::string> type, rope.String("rope_type"));
  if (!type.has_value()) {
    TLM_ASSIGN_OR_RETURN(type, rope.String("type"));  // the older spelling
  }
  if (!type.has_value() && rope.Has("factor")) {
    return InvalidArgument("{}rope_type is missing", rope.prefix());
  }
  return type.value_or("default");
}

// Reads one of the two objects, or of the objects inside it. `outer` is the whole configuration.
absl::StatusOr<RopeFields> ReadObject(const JsonFields& outer, const JsonFields& rope,
                                      int64_t context_length) {
  TLM_RETURN_IF_ERROR(RefusePartialRotation(rope));
  RopeFields result;
  TLM_ASSIGN_OR_RETURN(result.theta, rope.Number("rope_theta"));
  TLM_ASSIGN_OR_RETURN(const std::string type, ReadType(rope));
  if (type == "default") return result;
  RopeScaling scaling;
  if (type == "linear") {
    scaling.kind = RopeScaling::Kind::kLinear;
    TLM_ASSIGN_OR_RETURN(scaling.factor, Required(rope, "factor"));
  } else if (type == "llama3" || type == "yarn") {
    TLM_ASSIGN_OR_RETURN(scaling.original_context_length,
                         OriginalContext(outer, rope, context_length));
    TLM_RETURN_IF_ERROR(type == "llama3" ? ReadLlama3(rope, &scaling)
                                         : ReadYarn(rope, context_length, &scaling));
  } else {
    return Unimplemented("{}rope_type is {}, supported are default, linear, llama3 and yarn",
                         rope.prefix(), Quoted(type));
  }
  result.scaling = scaling;
  return result;
}

absl::StatusOr<RopeFields> ReadObjectOrNested(const JsonFields& outer, const JsonFields& rope,
                                              int64_t context_length) {
  std::optional<RopeFields> nested;
  for (const char* layer_type : {"full_attention", "sliding_attention"}) {
    TLM_ASSIGN_OR_RETURN(const std::optional<JsonFields> object, rope.Object(layer_type));
    if (!object.has_value()) continue;
    TLM_ASSIGN_OR_RETURN(const RopeFields read, ReadObject(outer, *object, context_length));
    if (nested.has_value() && !(*nested == read)) {
      return Unimplemented(
          "{}full_attention and {}sliding_attention differ, only layers with the same rotary "
          "positions are supported",
          rope.prefix(), rope.prefix());
    }
    nested = read;
  }
  if (nested.has_value()) return *nested;
  return ReadObject(outer, rope, context_length);
}

}  // namespace

absl::StatusOr<RopeFields> ReadRope(const JsonFields& fields, int64_t context_length) {
  TLM_RETURN_IF_ERROR(RefusePartialRotation(fields));
  std::vector<RopeFields> objects;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    TLM_ASSIGN_OR_RETURN(const std::optional<JsonFields> rope, fields.Object(key));
    if (!rope.has_value() || rope->Keys().empty()) continue;
    TLM_ASSIGN_OR_RETURN(const RopeFields read, ReadObjectOrNested(fields, *rope, context_length));
    objects.push_back(read);
  }
  TLM_ASSIGN_OR_RETURN(const std::optional<double> theta, fields.Number("rope_theta"));
  RopeFields result = objects.empty() ? RopeFields() : objects.front();
  if (!result.theta.has_value()) result.theta = theta;
  if (!result.theta.has_value() && !objects.empty()) result.theta = objects.back().theta;
  return result;
}

std::span<const char* const> RopeKeys() { return kOuterKeys; }
std::span<const char* const> RopeObjectKeys() { return kObjectKeys; }

}  // namespace tlm
