#include "model/config/transformer_lm_fields.h"

#include <string>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/config/rope_fields.h"
#include "model/config/shared_fields.h"

namespace tlm {
namespace {

using Limits = ConfigLimits;

constexpr FieldNames kWidth = {"d_model", "hidden_size"};
constexpr FieldNames kHeads = {"num_heads", "n_head", "num_attention_heads"};
constexpr FieldNames kPositions = {"positions", "position_embedding"};

constexpr Spelling<NormKind> kNorms[] = {
    {"rms", NormKind::kRms},      {"layer", NormKind::kLayer},     {"rmsnorm", NormKind::kRms},
    {"rms_norm", NormKind::kRms}, {"layernorm", NormKind::kLayer}, {"layer_norm", NormKind::kLayer},
};
constexpr Spelling<NormEps> kPlacements[] = {
    {"inside", NormEps::kInsideRoot},
    {"outside", NormEps::kOutsideRoot},
};
enum class Layout { kInterleaved, kHalf, kNone };
constexpr Spelling<Layout> kLayouts[] = {
    {"interleaved", Layout::kInterleaved},
    {"half", Layout::kHalf},
    {"none", Layout::kNone},
};
enum class Positions { kRotary, kLearned, kNone };
constexpr Spelling<Positions> kPositionKinds[] = {
    {"rope", Positions::kRotary},
    {"learned", Positions::kLearned},
    {"none", Positions::kNone},
};
constexpr Spelling<TensorNaming> kNamings[] = {
    {"cs336", TensorNaming::kCs336},
    {"qwen3_mha", TensorNaming::kQwen3Mha},
    {"hugging_face", TensorNaming::kHuggingFace},
    {"gpt2", TensorNaming::kGpt2},
};

absl::Status ReadDimensions(ConfigFields& fields, const FieldDefaults& defaults,
                            ModelConfig* config) {
  TLM_ASSIGN_OR_RETURN(config->vocab_size, fields.Dimension({"vocab_size"}, Limits::kVocabSize));
  TLM_ASSIGN_OR_RETURN(
      config->context_length,
      fields.Dimension({"context_length", "max_seq_len", "max_position_embeddings"},
                       Limits::kContextLength, defaults.context_length));
  TLM_ASSIGN_OR_RETURN(config->d_model, fields.Dimension(kWidth, Limits::kDModel));
  TLM_ASSIGN_OR_RETURN(
      config->num_layers,
      fields.Dimension({"num_layers", "n_layer", "num_hidden_layers"}, Limits::kNumLayers));
  TLM_ASSIGN_OR_RETURN(config->num_heads, fields.Dimension(kHeads, Limits::kNumHeads));
  TLM_ASSIGN_OR_RETURN(config->d_ff,
                       fields.Dimension({"d_ff", "d_hidden", "intermediate_size"}, Limits::kDFf));
  TLM_ASSIGN_OR_RETURN(config->num_kv_heads,
                       fields.Dimension({"num_kv_heads", "num_key_value_heads"}, Limits::kNumHeads,
                                        config->num_heads));
  if (fields.Has({"head_dim"})) {
    TLM_ASSIGN_OR_RETURN(config->head_dim, fields.Dimension({"head_dim"}, Limits::kHeadDim));
    return absl::OkStatus();
  }
  TLM_ASSIGN_OR_RETURN(config->head_dim, PerHead(fields.Key(kWidth), config->d_model,
                                                 fields.Key(kHeads), config->num_heads));
  return absl::OkStatus();
}

absl::Status ReadNorm(ConfigFields& fields, const FieldDefaults& defaults, ModelConfig* config) {
  TLM_ASSIGN_OR_RETURN(const std::optional<NormKind> kind, fields.Word({"norm"}, kNorms));
  config->norm_kind = kind.value_or(NormKind::kRms);
  TLM_ASSIGN_OR_RETURN(
      const std::optional<double> eps,
      fields.Number({"norm_eps", "eps", "rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon"}));
  config->norm_eps = eps.value_or(defaults.norm_eps);
  TLM_ASSIGN_OR_RETURN(const std::optional<NormEps> placement,
                       fields.Word({"norm_eps_placement"}, kPlacements));
  config->norm_eps_placement = placement.value_or(NormEps::kInsideRoot);
  TLM_ASSIGN_OR_RETURN(const std::optional<bool> qk_norm, fields.Bool({"qk_norm"}));
  config->qk_norm = qk_norm.value_or(defaults.qk_norm);
  return absl::OkStatus();
}

// `positions` combines `rope_layout` and `learned_positions`; if both are given they must agree. A
// rope_theta alone does not turn rotary positions on.
absl::Status CheckPositions(ConfigFields& fields, std::optional<Positions> positions,
                            std::optional<bool> rotary, std::optional<bool> learned) {
  if (!positions.has_value()) return absl::OkStatus();
  const std::string key = fields.Key(kPositions);
  if (rotary.has_value() && *rotary != (*positions == Positions::kRotary)) {
    return InvalidArgument("{} and rope_layout contradict each other; leave {} out", key, key);
  }
  if (learned.has_value() && *learned != (*positions == Positions::kLearned)) {
    return InvalidArgument("{} and learned_positions contradict each other; leave {} out", key,
                           key);
  }
  return absl::OkStatus();
}

absl::Status ReadPositions(ConfigFields& fields, const FieldDefaults& defaults,
                           ModelConfig* config) {
  TLM_ASSIGN_OR_RETURN(const std::optional<Positions> positions,
                       fields.Word(kPositions, kPositionKinds));
  TLM_ASSIGN_OR_RETURN(const std::optional<Layout> layout, fields.Word({"rope_layout"}, kLayouts));
  TLM_ASSIGN_OR_RETURN(const std::optional<bool> learned, fields.Bool({"learned_positions"}));
  std::optional<bool> rotary;
  if (layout.has_value()) rotary = *layout != Layout::kNone;
  TLM_RETURN_IF_ERROR(CheckPositions(fields, positions, rotary, learned));

  fields.Allow(RopeKeys());
  TLM_ASSIGN_OR_RETURN(const RopeFields rope, ReadRope(fields.json(), config->context_length));
  if (positions.has_value()) rotary = *positions == Positions::kRotary;
  if (!rotary.has_value()) rotary = rope.theta.has_value() || defaults.rope_theta.has_value();
  config->learned_positions = learned.value_or(positions == Positions::kLearned);
  if (!*rotary) {
    if (!rope.scaling.has_value()) return absl::OkStatus();
    return InvalidArgument("rope_scaling is given, but there are no rotary positions to scale");
  }
  config->rope_theta = rope.theta.value_or(defaults.rope_theta.value_or(10000.0));
  config->rope_scaling = rope.scaling;
  config->rope_layout = defaults.rope_layout;
  if (layout == Layout::kInterleaved) config->rope_layout = RopeLayout::kInterleaved;
  if (layout == Layout::kHalf) config->rope_layout = RopeLayout::kHalf;
  return absl::OkStatus();
}

absl::Status ReadWindow(ConfigFields& fields, ModelConfig* config) {
  TLM_ASSIGN_OR_RETURN(const std::optional<int64_t> window, fields.Integer({"sliding_window"}));
  fields.Key({"layer_types"});
  TLM_ASSIGN_OR_RETURN(std::optional<std::vector<bool>> full,
                       ReadLayerTypes(fields.json(), config->num_layers));
  if (full.has_value() && !window.has_value()) {
    return InvalidArgument("layer_types is given, but sliding_window is missing");
  }
  return SetSlidingWindow(window, std::move(full).value_or(std::vector<bool>()), config);
}

// Reads one boolean for all maps, or an object with one for each kind.
absl::Status ReadAllBiases(ConfigFields& fields, LinearBiases* biases) {
  const std::string key = fields.Key({"bias", "biases"});
  if (!fields.json().IsObject(key)) {
    TLM_ASSIGN_OR_RETURN(const std::optional<bool> all, fields.json().Bool(key));
    if (all.has_value()) *biases = {.qkv = *all, .attention_output = *all, .ffn = *all};
    return absl::OkStatus();
  }
  TLM_ASSIGN_OR_RETURN(const std::optional<JsonFields> object, fields.json().Object(key));
  ConfigFields inner(*object);
  TLM_ASSIGN_OR_RETURN(const std::optional<bool> qkv, inner.Bool({"qkv"}));
  TLM_ASSIGN_OR_RETURN(const std::optional<bool> output, inner.Bool({"attention_output"}));
  TLM_ASSIGN_OR_RETURN(const std::optional<bool> ffn, inner.Bool({"ffn"}));
  *biases = {.qkv = qkv.value_or(false),
             .attention_output = output.value_or(false),
             .ffn = ffn.value_or(false)};
  return inner.RefuseUnknown();
}

// Reads the general key first, then the specific ones, which take precedence.
absl::Status ReadBiases(ConfigFields& fields, ModelConfig* config) {
  LinearBiases& biases = config->biases;
  TLM_RETURN_IF_ERROR(ReadAllBiases(fields, &biases));
  TLM_ASSIGN_OR_RETURN(const std::optional<bool> attention, fields.Bool({"attention_bias"}));
  TLM_ASSIGN_OR_RETURN(const std::optional<bool> qkv, fields.Bool({"qkv_bias"}));
  TLM_ASSIGN_OR_RETURN(const std::optional<bool> output,
                       fields.Bool({"attention_output_bias", "output_bias", "o_bias"}));
  TLM_ASSIGN_OR_RETURN(const std::optional<bool> ffn, fields.Bool({"ffn_bias", "mlp_bias"}));
  biases.qkv = qkv.value_or(attention.value_or(biases.qkv));
  biases.attention_output = output.value_or(attention.value_or(biases.attention_output));
  biases.ffn = ffn.value_or(biases.ffn);
  return absl::OkStatus();
}

constexpr Spelling<FfnKind> kKinds[] = {
    {"swiglu", FfnKind::kSwiGlu},
    {"silu", FfnKind::kSilu},
    {"relu", FfnKind::kRelu},
    {"gelu", FfnKind::kGelu},
    {"gelu_tanh", FfnKind::kGeluTanh},
    {"gelu_new", FfnKind::kGeluTanh},
    {"gelu_pytorch_tanh", FfnKind::kGeluTanh},
};
constexpr Spelling<int> kMatrices[] = {{"w1", 1}, {"w2", 2}, {"w3", 3}};

// One matrix of the network: w2(silu(w1 x) * w3 x) with a gate, w2(silu(w1 x)) without.
struct Part {
  const char* key;
  int preferred;
  std::optional<int> given;
  int* place;
};

// Gives each part the name from the file, or its preferred name, or the one that is left.
absl::Status NameParts(Part (&parts)[3]) {
  bool taken[4] = {};
  for (Part& part : parts) {
    if (!part.given.has_value()) continue;
    if (std::exchange(taken[*part.given], true)) {
      return InvalidArgument("ffn_gate, ffn_up and ffn_down must differ, {} is 'w{}' again",
                             part.key, *part.given);
    }
  }
  for (Part& part : parts) {
    if (part.given.has_value() || taken[part.preferred]) continue;
    part.given = part.preferred;
    taken[part.preferred] = true;
  }
  for (Part& part : parts) {
    for (int name = 1; name <= 3 && !part.given.has_value(); ++name) {
      if (!std::exchange(taken[name], true)) part.given = name;
    }
    *part.place = *part.given;
  }
  return absl::OkStatus();
}

// Reads the kind of the feed-forward network, and the roles of the matrices w1, w2 and w3;
// config->naming must be set.
absl::Status ReadFfn(ConfigFields& fields, ModelConfig* config) {
  TLM_ASSIGN_OR_RETURN(const std::optional<FfnKind> kind, fields.Word({"ffn_type"}, kKinds));
  config->ffn_kind = kind.value_or(FfnKind::kSwiGlu);
  const bool gated = config->gated_ffn();
  FfnNames& names = config->ffn_names;
  Part parts[] = {{"ffn_gate", gated ? 1 : 3, {}, &names.gate},
                  {"ffn_up", gated ? 3 : 1, {}, &names.up},
                  {"ffn_down", 2, {}, &names.down}};
  for (Part& part : parts) {
    TLM_ASSIGN_OR_RETURN(part.given, fields.Word({part.key}, kMatrices));
    if (part.given.has_value() && config->naming != TensorNaming::kCs336) {
      return InvalidArgument("{} is given, but only tensor_naming 'cs336' has matrices w1, w2, w3",
                             part.key);
    }
  }
  if (parts[0].given.has_value() && !gated) {
    return InvalidArgument("ffn_gate is given, but this ffn_type has no gate");
  }
  return NameParts(parts);
}

}  // namespace

absl::Status ReadFields(ConfigFields& fields, const FieldDefaults& defaults, ModelConfig* config) {
  TLM_ASSIGN_OR_RETURN(const std::optional<TensorNaming> naming,
                       fields.Word({"tensor_naming"}, kNamings));
  config->naming = naming.value_or(config->naming);
  TLM_RETURN_IF_ERROR(ReadDimensions(fields, defaults, config));
  TLM_RETURN_IF_ERROR(ReadNorm(fields, defaults, config));
  TLM_RETURN_IF_ERROR(ReadPositions(fields, defaults, config));
  TLM_RETURN_IF_ERROR(ReadWindow(fields, config));
  TLM_RETURN_IF_ERROR(ReadBiases(fields, config));
  TLM_RETURN_IF_ERROR(ReadFfn(fields, config));
  TLM_ASSIGN_OR_RETURN(const std::optional<bool> tied, fields.Bool({"tie_word_embeddings"}));
  config->tie_word_embeddings = tied.value_or(false);
  return absl::OkStatus();
}

}  // namespace tlm
