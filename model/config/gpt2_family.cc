// Hugging Face's GPT-2. Its configuration uses names of its own and the general ones.
#include <optional>

#include "model/base/errors.h"
#include "model/config/config_fields.h"
#include "model/config/families.h"
#include "model/config/quantisation_fields.h"

namespace tlm {
namespace {

using Limits = ConfigLimits;

constexpr Spelling<FfnKind> kActivations[] = {
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

absl::Status ReadDimensions(ConfigFields& fields, ModelConfig* config) {
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
  TLM_RETURN_IF_ERROR(ReadDimensions(fields, config));
  TLM_RETURN_IF_ERROR(RequireFlag(json, "scale_attn_weights", true));
  TLM_RETURN_IF_ERROR(RequireFlag(json, "scale_attn_by_inverse_layer_idx", false));
  TLM_RETURN_IF_ERROR(RequireFlag(json, "add_cross_attention", false));
  TLM_RETURN_IF_ERROR(RefuseQuantisation(json));
  TLM_ASSIGN_OR_RETURN(const std::optional<FfnKind> activation,
                       fields.Word({"activation_function"}, kActivations));
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

constexpr Family kGpt2Families[] = {
    {"gpt2", "GPT2LMHeadModel", TensorNaming::kGpt2, 50256, 50256, &ReadGpt2},
};

}  // namespace

std::span<const Family> Gpt2Families() { return kGpt2Families; }

}  // namespace tlm
