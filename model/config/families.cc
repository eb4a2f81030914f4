#include "model/config/families.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/base/json.h"

namespace tlm {
namespace {

// What a Hugging Face configuration class fills in for keys its file leaves out.
struct HuggingFaceDefaults {
  std::optional<int64_t> head_dim;  // none: hidden_size / num_attention_heads
  std::optional<int64_t> bos_token_id;
  std::optional<int64_t> eos_token_id;
};

absl::Status RequireFalse(const JsonFields& fields, const char* key) {
  TLM_ASSIGN_OR_RETURN(const std::optional<bool> flag, fields.Bool(key));
  if (!flag.value_or(false)) return absl::OkStatus();
  return Unimplemented("{} is true, only false is supported", key);
}

absl::Status RequireString(const JsonFields& fields, const char* key, const char* supported) {
  TLM_ASSIGN_OR_RETURN(const std::optional<std::string> value, fields.String(key));
  if (!value.has_value() || *value == supported) return absl::OkStatus();
  return Unimplemented("{} is {}, only '{}' is supported", key, Quoted(*value), supported);
}

absl::Status RefusePartialRotation(const JsonFields& fields, const std::string& prefix) {
  TLM_ASSIGN_OR_RETURN(const std::optional<double> share, fields.Number("partial_rotary_factor"));
  if (share.value_or(1.0) == 1.0) return absl::OkStatus();
  return Unimplemented("{}partial_rotary_factor is {}, only 1 is supported", prefix, *share);
}

// Rotary positions: `rope_theta` at the top with an optional `rope_scaling`, or both in the newer
// `rope_parameters`, whose theta then counts.
absl::Status ReadRope(const JsonFields& fields, ModelConfig* config) {
  TLM_RETURN_IF_ERROR(RefusePartialRotation(fields, ""));
  TLM_ASSIGN_OR_RETURN(std::optional<double> theta, fields.Number("rope_theta"));
  for (const std::string key : {"rope_scaling", "rope_parameters"}) {
    TLM_ASSIGN_OR_RETURN(const std::optional<JsonFields> rope, fields.Object(key));
    if (!rope.has_value()) continue;
    TLM_ASSIGN_OR_RETURN(std::optional<std::string> type, rope->String("rope_type"));
    if (!type.has_value()) {
      TLM_ASSIGN_OR_RETURN(type, rope->String("type"));  // the older spelling
    }
    TLM_ASSIGN_OR_RETURN(const std::optional<double> own_theta, rope->Number("rope_theta"));
    if (!type.has_value() && !own_theta.has_value()) {
      return InvalidArgument("{}.rope_type is missing", key);
    }
    if (type.value_or("default") != "default") {
      return Unimplemented("{}.rope_type is {}, only 'default' is supported", key, Quoted(*type));
    }
    TLM_RETURN_IF_ERROR(RefusePartialRotation(*rope, key + "."));
    if (own_theta.has_value()) theta = own_theta;
  }
  config->rope_theta = theta.value_or(10000.0);
  config->rope_layout = RopeLayout::kHalf;
  return absl::OkStatus();
}

// A window no shorter than the context, or one that starts above the last layer, changes nothing.
absl::Status RefuseSlidingWindow(const JsonFields& fields, const ModelConfig& config) {
  TLM_ASSIGN_OR_RETURN(const std::vector<std::string> layer_types,
                       fields.Strings("layer_types", ConfigLimits::kNumLayers));
  for (const std::string& type : layer_types) {
    if (type != "full_attention") {
      return Unimplemented("layer_types names {}, only 'full_attention' is supported",
                           Quoted(type));
    }
  }
  TLM_ASSIGN_OR_RETURN(const std::optional<bool> use, fields.Bool("use_sliding_window"));
  TLM_ASSIGN_OR_RETURN(const std::optional<int64_t> window, fields.Integer("sliding_window"));
  TLM_ASSIGN_OR_RETURN(const std::optional<int64_t> first, fields.Integer("max_window_layers"));
  if (!use.value_or(false) || window.value_or(0) >= config.context_length ||
      first.value_or(0) >= config.num_layers) {
    return absl::OkStatus();
  }
  return Unimplemented(
      "use_sliding_window is true, only attention to the whole context is "
      "supported");
}

absl::Status RefuseQuantization(const JsonFields& fields) {
  TLM_ASSIGN_OR_RETURN(const std::optional<JsonFields> quantization,
                       fields.Object("quantization_config"));
  if (!quantization.has_value()) return absl::OkStatus();
  TLM_ASSIGN_OR_RETURN(const std::optional<std::string> method,
                       quantization->String("quant_method"));
  return Unimplemented(
      "quantization_config.quant_method is {}, quantised weights are not supported",
      Quoted(method.value_or("absent")));
}

// `key` left out means the default, null means none.
absl::Status ReadTokenIds(const JsonFields& fields, const HuggingFaceDefaults& defaults,
                          ModelConfig* config) {
  TLM_ASSIGN_OR_RETURN(std::optional<std::vector<int64_t>> eos,
                       fields.Integers("eos_token_id", ConfigLimits::kEosTokens));
  if (!eos.has_value() && defaults.eos_token_id.has_value() && !fields.IsNull("eos_token_id")) {
    eos = {*defaults.eos_token_id};
  }
  config->eos_token_ids = std::move(eos).value_or(std::vector<int64_t>());
  TLM_ASSIGN_OR_RETURN(config->bos_token_id, fields.Integer("bos_token_id"));
  if (!config->bos_token_id.has_value() && !fields.IsNull("bos_token_id")) {
    config->bos_token_id = defaults.bos_token_id;
  }
  return absl::OkStatus();
}

// Values divided evenly among heads, where the file does not say how many each gets.
absl::StatusOr<int64_t> PerHead(const char* width_name, int64_t width, const char* heads_name,
                                int64_t heads) {
  if (width % heads == 0) return width / heads;
  return InvalidArgument("{} is {}, it must be a multiple of {}, which is {}", width_name, width,
                         heads_name, heads);
}

absl::Status ReadHuggingFaceDimensions(const JsonFields& fields,
                                       const HuggingFaceDefaults& defaults, ModelConfig* config) {
  using Limits = ConfigLimits;
  TLM_ASSIGN_OR_RETURN(config->vocab_size, fields.Dimension("vocab_size", Limits::kVocabSize));
  TLM_ASSIGN_OR_RETURN(config->context_length,
                       fields.Dimension("max_position_embeddings", Limits::kContextLength));
  TLM_ASSIGN_OR_RETURN(config->d_model, fields.Dimension("hidden_size", Limits::kDModel));
  TLM_ASSIGN_OR_RETURN(config->d_ff, fields.Dimension("intermediate_size", Limits::kDFf));
  TLM_ASSIGN_OR_RETURN(config->num_layers,
                       fields.Dimension("num_hidden_layers", Limits::kNumLayers));
  TLM_ASSIGN_OR_RETURN(config->num_heads,
                       fields.Dimension("num_attention_heads", Limits::kNumHeads));
  TLM_ASSIGN_OR_RETURN(
      config->num_kv_heads,
      fields.Dimension("num_key_value_heads", Limits::kNumHeads, config->num_heads));
  if (fields.Has("head_dim") || defaults.head_dim.has_value()) {
    TLM_ASSIGN_OR_RETURN(config->head_dim, fields.Dimension("head_dim", Limits::kHeadDim,
                                                            defaults.head_dim.value_or(0)));
    return absl::OkStatus();
  }
  TLM_ASSIGN_OR_RETURN(config->head_dim, PerHead("hidden_size", config->d_model,
                                                 "num_attention_heads", config->num_heads));
  return absl::OkStatus();
}

// What every Llama-like Hugging Face model shares.
absl::Status ReadHuggingFace(const JsonFields& fields, const HuggingFaceDefaults& defaults,
                             ModelConfig* config) {
  TLM_RETURN_IF_ERROR(ReadHuggingFaceDimensions(fields, defaults, config));
  TLM_RETURN_IF_ERROR(RequireString(fields, "hidden_act", "silu"));
  TLM_RETURN_IF_ERROR(RequireFalse(fields, "attention_bias"));
  TLM_RETURN_IF_ERROR(RequireFalse(fields, "mlp_bias"));
  TLM_RETURN_IF_ERROR(RefuseQuantization(fields));
  TLM_RETURN_IF_ERROR(RefuseSlidingWindow(fields, *config));
  TLM_RETURN_IF_ERROR(ReadRope(fields, config));
  TLM_ASSIGN_OR_RETURN(const std::optional<double> eps, fields.Number("rms_norm_eps"));
  config->norm_eps = eps.value_or(1e-6);
  TLM_ASSIGN_OR_RETURN(const std::optional<bool> tied, fields.Bool("tie_word_embeddings"));
  config->tie_word_embeddings = tied.value_or(false);
  return ReadTokenIds(fields, defaults, config);
}

absl::Status ReadLlama(const JsonFields& fields, ModelConfig* config) {
  return ReadHuggingFace(fields, {.head_dim = {}, .bos_token_id = 1, .eos_token_id = 2}, config);
}

absl::Status ReadQwen3(const JsonFields& fields, ModelConfig* config) {
  config->qk_norm = true;
  return ReadHuggingFace(fields, {.head_dim = 128, .bos_token_id = {}, .eos_token_id = {}}, config);
}

absl::Status ReadCs336(const JsonFields& fields, ModelConfig* config) {
  using Limits = ConfigLimits;
  TLM_ASSIGN_OR_RETURN(config->vocab_size, fields.Dimension("vocab_size", Limits::kVocabSize));
  TLM_ASSIGN_OR_RETURN(config->context_length,
                       fields.Dimension("context_length", Limits::kContextLength));
  TLM_ASSIGN_OR_RETURN(config->d_model, fields.Dimension("d_model", Limits::kDModel));
  TLM_ASSIGN_OR_RETURN(config->num_layers, fields.Dimension("num_layers", Limits::kNumLayers));
  TLM_ASSIGN_OR_RETURN(config->num_heads, fields.Dimension("num_heads", Limits::kNumHeads));
  TLM_ASSIGN_OR_RETURN(config->d_ff, fields.Dimension("d_ff", Limits::kDFf));
  config->num_kv_heads = config->num_heads;
  TLM_ASSIGN_OR_RETURN(config->head_dim,
                       PerHead("d_model", config->d_model, "num_heads", config->num_heads));
  TLM_RETURN_IF_ERROR(RequireString(fields, "ffn_type", "swiglu"));
  TLM_ASSIGN_OR_RETURN(config->rope_theta, fields.Number("rope_theta"));
  config->rope_layout = RopeLayout::kInterleaved;
  TLM_ASSIGN_OR_RETURN(const std::optional<double> eps, fields.Number("eps"));
  config->norm_eps = eps.value_or(1e-5);
  return ReadTokenIds(fields, {}, config);
}

constexpr Family kFamilies[] = {
    {"cs336", "TransformerLM", TensorNaming::kCs336, &ReadCs336},
    {"llama", "LlamaForCausalLM", TensorNaming::kHuggingFace, &ReadLlama},
    {"qwen3", "Qwen3ForCausalLM", TensorNaming::kHuggingFace, &ReadQwen3},
};

}  // namespace

std::span<const Family> Families() { return kFamilies; }

}  // namespace tlm
