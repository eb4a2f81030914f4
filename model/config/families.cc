#include "model/config/families.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/config/config_fields.h"
#include "model/config/quantisation_fields.h"
#include "model/config/rope_fields.h"
#include "model/config/shared_fields.h"
#include "model/config/transformer_lm_fields.h"

namespace tlm {
namespace {

using Limits = ConfigLimits;

// The files of the course notebooks also hold settings of the notebook: unknown keys are ignored.
absl::Status ReadCs336(const JsonFields& json, ModelConfig* config) {
  ConfigFields fields(json);
  return ReadFields(fields, {}, config);
}

absl::Status ReadQwen3Mha(const JsonFields& json, ModelConfig* config) {
  ConfigFields fields(json);
  const FieldDefaults defaults = {.context_length = 8192,
                                  .norm_eps = 1e-6,
                                  .qk_norm = true,
                                  .rope_theta = 10000.0,
                                  .rope_layout = RopeLayout::kHalf};
  return ReadFields(fields, defaults, config);
}

// Keys of a transformer_lm that have no effect.
constexpr const char* kHarmless[] = {"architectures",
                                     "attention_dropout",
                                     "attn_pdrop",
                                     "bos_token_id",
                                     "dropout",
                                     "dtype",
                                     "embd_pdrop",
                                     "eos_token_id",
                                     "initializer_range",
                                     "model_type",
                                     "name",
                                     "pad_token_id",
                                     "resid_pdrop",
                                     "residual_dropout",
                                     "torch_dtype",
                                     "embedding_dropout",
                                     "transformers_version",
                                     "use_cache"};

// In the generic family every setting has a name. Unknown keys are refused: a misspelt setting
// would silently keep its default and change the results.
absl::Status ReadTransformerLm(const JsonFields& json, ModelConfig* config) {
  ConfigFields fields(json);
  TLM_RETURN_IF_ERROR(ReadFields(fields, {}, config));
  fields.Allow(kHarmless);
  TLM_RETURN_IF_ERROR(fields.RefuseUnknown());
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    TLM_ASSIGN_OR_RETURN(const std::optional<JsonFields> rope, json.Object(key));
    if (!rope.has_value()) continue;
    ConfigFields inner(*rope);
    inner.Allow(RopeObjectKeys());
    TLM_RETURN_IF_ERROR(inner.RefuseUnknown());
  }
  return absl::OkStatus();
}

constexpr Spelling<FfnKind> kGpt2Activations[] = {
    {"gelu_new", FfnKind::kGeluTanh},
    {"gelu_pytorch_tanh", FfnKind::kGeluTanh},
    {"gelu_python_tanh", FfnKind::kGeluTanh},
    {"gelu_fast", FfnKind::kGeluTanh},
    {"gelu_accurate", FfnKind::kGeluTanh},
    {"gelu", FfnKind::kGelu},
    {"gelu_python", FfnKind::kGelu},
    {"relu", FfnKind::kRelu},
    {"silu", FfnKind::kSilu},
    {"swish", FfnKind::kSilu},
};

// GPT-2 files use names of their own and the general ones.
absl::Status ReadGpt2Dimensions(ConfigFields& fields, ModelConfig* config) {
  TLM_ASSIGN_OR_RETURN(config->vocab_size, fields.Dimension({"vocab_size"}, Limits::kVocabSize));
  TLM_ASSIGN_OR_RETURN(config->context_length,
                       fields.Dimension({"n_positions", "max_position_embeddings", "n_ctx"},
                                        Limits::kContextLength));
  TLM_ASSIGN_OR_RETURN(config->d_model,
                       fields.Dimension({"n_embd", "hidden_size"}, Limits::kDModel));
  TLM_ASSIGN_OR_RETURN(config->num_layers,
                       fields.Dimension({"n_layer", "num_hidden_layers"}, Limits::kNumLayers));
  TLM_ASSIGN_OR_RETURN(config->num_heads,
                       fields.Dimension({"n_head", "num_attention_heads"}, Limits::kNumHeads));
  TLM_ASSIGN_OR_RETURN(config->d_ff,
                       fields.Dimension({"n_inner"}, Limits::kDFf, 4 * config->d_model));
  config->num_kv_heads = config->num_heads;
  TLM_ASSIGN_OR_RETURN(config->head_dim,
                       PerHead("n_embd", config->d_model, "n_head", config->num_heads));
  return absl::OkStatus();
}

absl::Status ReadGpt2(const JsonFields& json, ModelConfig* config) {
  ConfigFields fields(json);
  TLM_RETURN_IF_ERROR(ReadGpt2Dimensions(fields, config));
  TLM_RETURN_IF_ERROR(RequireFlag(json, "scale_attn_weights", true));
  TLM_RETURN_IF_ERROR(RequireFlag(json, "scale_attn_by_inverse_layer_idx", false));
  TLM_RETURN_IF_ERROR(RequireFlag(json, "add_cross_attention", false));
  TLM_RETURN_IF_ERROR(RefuseQuantisation(json));
  TLM_ASSIGN_OR_RETURN(const std::optional<FfnKind> activation,
                       fields.Word({"activation_function"}, kGpt2Activations));
  config->ffn_kind = activation.value_or(FfnKind::kGeluTanh);
  config->norm_kind = NormKind::kLayer;
  TLM_ASSIGN_OR_RETURN(const std::optional<double> eps, fields.Number({"layer_norm_epsilon"}));
  config->norm_eps = eps.value_or(1e-5);
  config->learned_positions = true;
  config->biases = {.qkv = true, .attention_output = true, .ffn = true};
  TLM_ASSIGN_OR_RETURN(const std::optional<bool> tied, fields.Bool({"tie_word_embeddings"}));
  config->tie_word_embeddings = tied.value_or(true);
  return absl::OkStatus();
}

// Defaults that differ between Llama and the families like it: the values that Hugging Face's
// configuration class of the family uses for keys that are missing in its file.
struct Defaults {
  std::optional<int64_t> num_kv_heads;  // nullopt, or null in the file: num_attention_heads
  std::optional<int64_t> head_dim;      // nullopt: hidden_size / num_attention_heads
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

// Reads what Llama and the families like it share: everything except biases and window.
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

// If all layers of a family are alike, its `layer_types` may only repeat their type.
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

// Reads Qwen's windows: without `layer_types`, the layers from `max_window_layers` on have one.
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

constexpr auto kHuggingFace = TensorNaming::kHuggingFace;
constexpr Family kFamilies[] = {
    {"cs336", "TransformerLM", TensorNaming::kCs336, {}, {}, &ReadCs336},
    {"qwen3_mha", "Qwen3", TensorNaming::kQwen3Mha, {}, {}, &ReadQwen3Mha},
    {"transformer_lm", "TransformerLM", TensorNaming::kCs336, {}, {}, &ReadTransformerLm},
    {"gpt2", "GPT2LMHeadModel", TensorNaming::kGpt2, 50256, 50256, &ReadGpt2},
    {"llama", "LlamaForCausalLM", kHuggingFace, 1, 2, &ReadLlama},
    {"mistral", "MistralForCausalLM", kHuggingFace, 1, 2, &ReadMistral},
    {"qwen2", "Qwen2ForCausalLM", kHuggingFace, {}, {}, &ReadQwen2},
    {"qwen3", "Qwen3ForCausalLM", kHuggingFace, {}, {}, &ReadQwen3},
};

}  // namespace

std::span<const Family> Families() { return kFamilies; }

const Family* FindFamily(std::string_view model_type) {
  for (const Family& family : kFamilies) {
    if (family.model_type == model_type) return &family;
  }
  return nullptr;
}

}  // namespace tlm
