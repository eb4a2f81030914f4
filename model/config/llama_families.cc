// Hugging Face's Llama and those built like it. Defaults are those of its configuration classes.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/config/families.h"
#include "model/config/quantisation_fields.h"
#include "model/config/rope_fields.h"

namespace tlm {
namespace {

using Limits = ConfigLimits;

// What the configuration class fills in for keys its file leaves out.
struct Defaults {
  std::optional<int64_t> num_kv_heads;  // none: num_attention_heads, which null means for all
  std::optional<int64_t> head_dim;      // none: hidden_size / num_attention_heads
};

absl::Status ReadDimensions(const JsonFields& fields, const Defaults& defaults,
                            ModelConfig* config) {
  TLM_ASSIGN_OR_RETURN(config->vocab_size, fields.Dimension("vocab_size", Limits::kVocabSize));
  TLM_ASSIGN_OR_RETURN(config->context_length,
                       fields.Dimension("max_position_embeddings", Limits::kContextLength));
  TLM_ASSIGN_OR_RETURN(config->d_model, fields.Dimension("hidden_size", Limits::kDModel));
  TLM_ASSIGN_OR_RETURN(config->d_ff, fields.Dimension("intermediate_size", Limits::kDFf));
  TLM_ASSIGN_OR_RETURN(config->num_layers,
                       fields.Dimension("num_hidden_layers", Limits::kNumLayers));
  TLM_ASSIGN_OR_RETURN(config->num_heads,
                       fields.Dimension("num_attention_heads", Limits::kNumHeads));
  const int64_t kv_heads = fields.IsNull("num_key_value_heads")
                               ? config->num_heads
                               : defaults.num_kv_heads.value_or(config->num_heads);
  TLM_ASSIGN_OR_RETURN(config->num_kv_heads,
                       fields.Dimension("num_key_value_heads", Limits::kNumHeads,
                                        std::min(kv_heads, config->num_heads)));
  if (fields.Has("head_dim") || defaults.head_dim.has_value()) {
    TLM_ASSIGN_OR_RETURN(config->head_dim, fields.Dimension("head_dim", Limits::kHeadDim,
                                                            defaults.head_dim.value_or(0)));
    return absl::OkStatus();
  }
  TLM_ASSIGN_OR_RETURN(config->head_dim, PerHead("hidden_size", config->d_model,
                                                 "num_attention_heads", config->num_heads));
  return absl::OkStatus();
}

absl::Status RequireSilu(const JsonFields& fields) {
  TLM_ASSIGN_OR_RETURN(const std::optional<std::string> value, fields.String("hidden_act"));
  if (value.value_or("silu") == "silu" || *value == "swish") return absl::OkStatus();
  return Unimplemented("hidden_act is {}, only 'silu' is supported", Quoted(*value));
}

// All but biases and window.
absl::Status ReadCommon(const JsonFields& fields, const Defaults& defaults, ModelConfig* config) {
  TLM_RETURN_IF_ERROR(ReadDimensions(fields, defaults, config));
  TLM_RETURN_IF_ERROR(RequireSilu(fields));
  TLM_ASSIGN_OR_RETURN(config->quantisation, ReadQuantisation(fields));
  TLM_ASSIGN_OR_RETURN(const RopeFields rope, ReadRope(fields, config->context_length));
  config->rope_theta = rope.theta.value_or(10000.0);
  config->rope_layout = RopeLayout::kHalf;
  config->rope_scaling = rope.scaling;
  TLM_ASSIGN_OR_RETURN(const std::optional<double> eps, fields.Number("rms_norm_eps"));
  config->norm_eps = eps.value_or(1e-6);
  TLM_ASSIGN_OR_RETURN(const std::optional<bool> tied, fields.Bool("tie_word_embeddings"));
  config->tie_word_embeddings = tied.value_or(false);
  return absl::OkStatus();
}

absl::Status ReadAttentionBias(const JsonFields& fields, ModelConfig* config) {
  TLM_ASSIGN_OR_RETURN(const std::optional<bool> bias, fields.Bool("attention_bias"));
  config->biases.qkv = bias.value_or(false);
  config->biases.attention_output = bias.value_or(false);
  return absl::OkStatus();
}

// `layer_types` of a family whose layers are all alike may only repeat what they are.
absl::Status RequireLayerTypes(const JsonFields& fields, bool full, const ModelConfig& config) {
  TLM_ASSIGN_OR_RETURN(const std::optional<std::vector<bool>> types,
                       ReadLayerTypes(fields, config.num_layers));
  if (!types.has_value() || std::count(types->begin(), types->end(), !full) == 0) {
    return absl::OkStatus();
  }
  return Unimplemented("layer_types names '{}_attention', only '{}_attention' is supported here",
                       full ? "sliding" : "full", full ? "full" : "sliding");
}

absl::Status ReadLlama(const JsonFields& fields, ModelConfig* config) {
  TLM_RETURN_IF_ERROR(ReadCommon(fields, {}, config));
  TLM_RETURN_IF_ERROR(ReadAttentionBias(fields, config));
  TLM_ASSIGN_OR_RETURN(const std::optional<bool> mlp_bias, fields.Bool("mlp_bias"));
  config->biases.ffn = mlp_bias.value_or(false);
  return RequireLayerTypes(fields, true, *config);
}

absl::Status ReadMistral(const JsonFields& fields, ModelConfig* config) {
  TLM_RETURN_IF_ERROR(ReadCommon(fields, {.num_kv_heads = 8, .head_dim = {}}, config));
  TLM_ASSIGN_OR_RETURN(std::optional<int64_t> window, fields.Integer("sliding_window"));
  if (!window.has_value() && !fields.IsNull("sliding_window")) window = 4096;
  TLM_RETURN_IF_ERROR(RequireLayerTypes(fields, !window.has_value(), *config));
  return SetSlidingWindow(window, {}, config);
}

// Qwen's windows: without `layer_types`, of the layers from `max_window_layers` on.
absl::Status ReadQwenWindow(const JsonFields& fields, ModelConfig* config) {
  TLM_ASSIGN_OR_RETURN(const std::optional<bool> use, fields.Bool("use_sliding_window"));
  TLM_ASSIGN_OR_RETURN(std::optional<int64_t> window, fields.Integer("sliding_window"));
  TLM_ASSIGN_OR_RETURN(const std::optional<int64_t> first, fields.Integer("max_window_layers"));
  TLM_ASSIGN_OR_RETURN(std::optional<std::vector<bool>> full,
                       ReadLayerTypes(fields, config->num_layers));
  if (!window.has_value() && !fields.IsNull("sliding_window")) window = 4096;
  if (!use.value_or(false)) window.reset();
  if (!full.has_value()) {
    full.emplace(static_cast<size_t>(config->num_layers), true);
    for (int64_t layer = std::max<int64_t>(first.value_or(28), 0);
         window.has_value() && layer < config->num_layers; ++layer) {
      (*full)[static_cast<size_t>(layer)] = false;
    }
  } else if (!window.has_value() && std::count(full->begin(), full->end(), false) > 0) {
    return InvalidArgument(
        "layer_types names 'sliding_attention', but sliding_window is null or use_sliding_window "
        "false");
  }
  return SetSlidingWindow(window, *std::move(full), config);
}

absl::Status ReadQwen2(const JsonFields& fields, ModelConfig* config) {
  TLM_RETURN_IF_ERROR(ReadCommon(fields, {.num_kv_heads = 32, .head_dim = {}}, config));
  config->biases.qkv = true;
  return ReadQwenWindow(fields, config);
}

absl::Status ReadQwen3(const JsonFields& fields, ModelConfig* config) {
  TLM_RETURN_IF_ERROR(ReadCommon(fields, {.num_kv_heads = 32, .head_dim = 128}, config));
  config->qk_norm = true;
  TLM_RETURN_IF_ERROR(ReadAttentionBias(fields, config));
  return ReadQwenWindow(fields, config);
}

constexpr auto kNaming = TensorNaming::kHuggingFace;
constexpr Family kLlamaFamilies[] = {
    {"llama", "LlamaForCausalLM", kNaming, 1, 2, &ReadLlama},
    {"mistral", "MistralForCausalLM", kNaming, 1, 2, &ReadMistral},
    {"qwen2", "Qwen2ForCausalLM", kNaming, {}, {}, &ReadQwen2},
    {"qwen3", "Qwen3ForCausalLM", kNaming, {}, {}, &ReadQwen3},
};

}  // namespace

std::span<const Family> LlamaFamilies() { return kLlamaFamilies; }

}  // namespace tlm
