#include "model/weights/name_map.h"

#include <optional>

#include "model/base/errors.h"

namespace tlm {
namespace {

// The name of a linear map or a norm: its weight is "NAME.weight", its bias "NAME.bias". "{}" is
// replaced by the layer's number. Null: this naming lacks the tensor.
struct NameRow {
  TensorRole weight;
  std::optional<TensorRole> bias;
  const char* cs336;
  const char* qwen3_mha;
  const char* hugging_face;
  const char* gpt2;
  const char* gguf;
};

using Role = TensorRole;
constexpr NameRow kNames[] = {
    {Role::kTokenEmbedding,
     {},
     "token_embeddings",
     "embeddings",
     "model.embed_tokens",
     "wte",
     "token_embd"},
    {Role::kPositionEmbedding,
     {},
     "position_embeddings",
     "position_embeddings",
     "model.embed_positions",
     "wpe",
     "position_embd"},
    {Role::kAttnNorm, Role::kAttnNormBias, "layers.{}.ln1", "layers.{}.input_norm",
     "model.layers.{}.input_layernorm", "h.{}.ln_1", "blk.{}.attn_norm"},
    {Role::kQkv, Role::kQkvBias, nullptr, nullptr, nullptr, "h.{}.attn.c_attn", "blk.{}.attn_qkv"},
    {Role::kQ, Role::kQBias, "layers.{}.attn.q_proj", "layers.{}.attn.wq",
     "model.layers.{}.self_attn.q_proj", nullptr, "blk.{}.attn_q"},
    {Role::kK, Role::kKBias, "layers.{}.attn.k_proj", "layers.{}.attn.wk",
     "model.layers.{}.self_attn.k_proj", nullptr, "blk.{}.attn_k"},
    {Role::kV, Role::kVBias, "layers.{}.attn.v_proj", "layers.{}.attn.wv",
     "model.layers.{}.self_attn.v_proj", nullptr, "blk.{}.attn_v"},
    {Role::kQNorm,
     {},
     "layers.{}.attn.q_norm",
     "layers.{}.attn.q_norm",
     "model.layers.{}.self_attn.q_norm",
     "h.{}.attn.q_norm",
     "blk.{}.attn_q_norm"},
    {Role::kKNorm,
     {},
     "layers.{}.attn.k_norm",
     "layers.{}.attn.k_norm",
     "model.layers.{}.self_attn.k_norm",
     "h.{}.attn.k_norm",
     "blk.{}.attn_k_norm"},
    {Role::kO, Role::kOBias, "layers.{}.attn.output_proj", "layers.{}.attn.wo",
     "model.layers.{}.self_attn.o_proj", "h.{}.attn.c_proj", "blk.{}.attn_output"},
    {Role::kFfnNorm, Role::kFfnNormBias, "layers.{}.ln2", "layers.{}.post_attention_norm",
     "model.layers.{}.post_attention_layernorm", "h.{}.ln_2", "blk.{}.ffn_norm"},
    // cs336: the number from FfnNames follows the w.
    {Role::kGate, Role::kGateBias, "layers.{}.ffn.w", "layers.{}.ffn.gate_proj",
     "model.layers.{}.mlp.gate_proj", nullptr, "blk.{}.ffn_gate"},
    {Role::kUp, Role::kUpBias, "layers.{}.ffn.w", "layers.{}.ffn.up_proj",
     "model.layers.{}.mlp.up_proj", "h.{}.mlp.c_fc", "blk.{}.ffn_up"},
    {Role::kDown, Role::kDownBias, "layers.{}.ffn.w", "layers.{}.ffn.down_proj",
     "model.layers.{}.mlp.down_proj", "h.{}.mlp.c_proj", "blk.{}.ffn_down"},
    {Role::kFinalNorm, Role::kFinalNormBias, "ln_final", "norm", "model.norm", "ln_f",
     "output_norm"},
    {Role::kLmHead, {}, "lm_head", "output", "lm_head", "lm_head", "output"},
};

const char* Pattern(const NameRow& row, TensorNaming naming) {
  switch (naming) {
    case TensorNaming::kCs336:
      return row.cs336;
    case TensorNaming::kQwen3Mha:
      return row.qwen3_mha;
    case TensorNaming::kHuggingFace:
      return row.hugging_face;
    case TensorNaming::kGpt2:
      return row.gpt2;
    case TensorNaming::kGguf:
    case TensorNaming::kGgufGpt2:
      return row.gguf;
  }
  return nullptr;
}

// Returns the number after the w; 0 unless the role is a matrix of the feed-forward network.
int FfnNumber(TensorRole weight, const FfnNames& ffn) {
  if (weight == TensorRole::kGate) return ffn.gate;
  if (weight == TensorRole::kUp) return ffn.up;
  if (weight == TensorRole::kDown) return ffn.down;
  return 0;
}

// Returns the shape of a matrix [outputs, inputs].
Shape MatrixShape(const ModelConfig& config, TensorRole role) {
  switch (role) {
    case TensorRole::kTokenEmbedding:
    case TensorRole::kLmHead:
      return {config.vocab_size, config.d_model};
    case TensorRole::kPositionEmbedding:
      return {config.context_length, config.d_model};
    case TensorRole::kQkv:
      return {config.q_size() + 2 * config.kv_size(), config.d_model};
    case TensorRole::kQ:
      return {config.q_size(), config.d_model};
    case TensorRole::kK:
    case TensorRole::kV:
      return {config.kv_size(), config.d_model};
    case TensorRole::kO:
      return {config.d_model, config.q_size()};
    case TensorRole::kGate:
    case TensorRole::kUp:
      return {config.d_ff, config.d_model};
    case TensorRole::kDown:
      return {config.d_model, config.d_ff};
    default:
      return {};
  }
}

Shape ShapeOf(const ModelConfig& config, TensorRole role) {
  switch (role) {
    case TensorRole::kFinalNorm:
    case TensorRole::kFinalNormBias:
    case TensorRole::kAttnNorm:
    case TensorRole::kAttnNormBias:
    case TensorRole::kFfnNorm:
    case TensorRole::kFfnNormBias:
    case TensorRole::kOBias:
    case TensorRole::kDownBias:
      return {config.d_model};
    case TensorRole::kQkvBias:
      return {config.q_size() + 2 * config.kv_size()};
    case TensorRole::kQBias:
      return {config.q_size()};
    case TensorRole::kKBias:
    case TensorRole::kVBias:
      return {config.kv_size()};
    case TensorRole::kQNorm:
    case TensorRole::kKNorm:
      return {config.head_dim};
    case TensorRole::kGateBias:
    case TensorRole::kUpBias:
      return {config.d_ff};
    default:
      break;
  }
  const Shape shape = MatrixShape(config, role);
  return IsInputsFirst(config.naming, role) ? Shape{shape[1], shape[0]} : shape;
}

// Returns the roles of one layer, in the order of the forward pass.
std::vector<TensorRole> LayerRoles(const ModelConfig& config) {
  std::vector<TensorRole> roles;
  const auto add = [&](TensorRole weight, TensorRole bias, bool has_bias) {
    roles.push_back(weight);
    if (has_bias) roles.push_back(bias);
  };
  const bool norm_bias = config.norm_kind == NormKind::kLayer;
  const LinearBiases& biases = config.biases;
  add(TensorRole::kAttnNorm, TensorRole::kAttnNormBias, norm_bias);
  if (config.naming == TensorNaming::kGpt2 || config.naming == TensorNaming::kGgufGpt2) {
    add(TensorRole::kQkv, TensorRole::kQkvBias, biases.qkv);
  } else {
    add(TensorRole::kQ, TensorRole::kQBias, biases.qkv);
    add(TensorRole::kK, TensorRole::kKBias, biases.qkv);
    add(TensorRole::kV, TensorRole::kVBias, biases.qkv);
  }
  if (config.qk_norm) roles.insert(roles.end(), {TensorRole::kQNorm, TensorRole::kKNorm});
  add(TensorRole::kO, TensorRole::kOBias, biases.attention_output);
  add(TensorRole::kFfnNorm, TensorRole::kFfnNormBias, norm_bias);
  if (config.gated_ffn()) add(TensorRole::kGate, TensorRole::kGateBias, biases.ffn);
  add(TensorRole::kUp, TensorRole::kUpBias, biases.ffn);
  add(TensorRole::kDown, TensorRole::kDownBias, biases.ffn);
  return roles;
}

}  // namespace

bool IsInputsFirst(TensorNaming naming, TensorRole role) {
  if (naming != TensorNaming::kGpt2) return false;
  return role == TensorRole::kQkv || role == TensorRole::kO || role == TensorRole::kUp ||
         role == TensorRole::kDown;
}

std::string TensorName(TensorNaming naming, TensorRole role, int layer, const FfnNames& ffn) {
  for (const NameRow& row : kNames) {
    if (row.weight != role && row.bias != role) continue;
    const char* const pattern = Pattern(row, naming);
    TLM_CHECK(pattern != nullptr);
    std::string name = fmt::format(fmt::runtime(pattern), layer);
    const int number = FfnNumber(row.weight, ffn);
    if (naming == TensorNaming::kCs336 && number != 0) name += std::to_string(number);
    return name + (row.weight == role ? ".weight" : ".bias");
  }
  TLM_CHECK(false);
}

std::string OtherTensorName(TensorNaming naming, std::string_view name) {
  constexpr std::string_view kHuggingFacePrefix = "model.";
  if (naming == TensorNaming::kHuggingFace && name.starts_with(kHuggingFacePrefix)) {
    return std::string(name.substr(kHuggingFacePrefix.size()));
  }
  if (naming == TensorNaming::kGpt2 && !name.starts_with("lm_head.")) {
    return "transformer." + std::string(name);
  }
  return "";
}

std::vector<TensorSpec> ExpectedTensors(const ModelConfig& config) {
  std::vector<TensorSpec> specs;
  const auto add = [&](TensorRole role, int layer) {
    specs.push_back({role, layer, TensorName(config.naming, role, layer, config.ffn_names),
                     ShapeOf(config, role)});
  };
  add(TensorRole::kTokenEmbedding, -1);
  if (config.learned_positions) add(TensorRole::kPositionEmbedding, -1);
  const std::vector<TensorRole> layer_roles = LayerRoles(config);
  for (int layer = 0; layer < config.num_layers; ++layer) {
    for (const TensorRole role : layer_roles) add(role, layer);
  }
  add(TensorRole::kFinalNorm, -1);
  if (config.norm_kind == NormKind::kLayer) add(TensorRole::kFinalNormBias, -1);
  if (!config.tie_word_embeddings) add(TensorRole::kLmHead, -1);
  return specs;
}

bool IsKnownBuffer(std::string_view name, int rank) {
  if (name.ends_with(".attn.masked_bias") || name == "rope_freqs.weight") return true;
  if (name.ends_with(".attn.bias")) return rank == 4;
  for (const std::string_view mask : {".causal_mask", ".attn_mask", ".mask"}) {
    if (name.ends_with(mask)) return true;
  }
  // Visits the parts of the name from the last; a parameter's name ends in "weight" or "bias".
  bool last = true;
  while (!name.empty()) {
    const size_t dot = name.rfind('.');
    const std::string_view part = name.substr(dot + 1);  // npos + 1 is 0
    if (last && (part == "weight" || part == "bias")) return false;
    if (!last && (part == "rope" || part == "rotary_emb" || part == "positional_encoder")) {
      return true;
    }
    last = false;
    name = name.substr(0, dot == name.npos ? 0 : dot);
  }
  return false;
}

}  // namespace tlm
