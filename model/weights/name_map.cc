#include "model/weights/name_map.h"

#include <utility>

#include "model/base/errors.h"

namespace tlm {
namespace {

// A role that is per layer has a name with "{}" for the layer's number.
struct NameRow {
  TensorRole role;
  const char* cs336;
  const char* hugging_face;
};

constexpr NameRow kNames[] = {
    {TensorRole::kTokenEmbedding, "token_embeddings.weight", "model.embed_tokens.weight"},
    {TensorRole::kFinalNorm, "ln_final.weight", "model.norm.weight"},
    {TensorRole::kLmHead, "lm_head.weight", "lm_head.weight"},
    {TensorRole::kAttnNorm, "layers.{}.ln1.weight", "model.layers.{}.input_layernorm.weight"},
    {TensorRole::kQ, "layers.{}.attn.q_proj.weight", "model.layers.{}.self_attn.q_proj.weight"},
    {TensorRole::kK, "layers.{}.attn.k_proj.weight", "model.layers.{}.self_attn.k_proj.weight"},
    {TensorRole::kV, "layers.{}.attn.v_proj.weight", "model.layers.{}.self_attn.v_proj.weight"},
    {TensorRole::kO, "layers.{}.attn.output_proj.weight",
     "model.layers.{}.self_attn.o_proj.weight"},
    {TensorRole::kQNorm, "layers.{}.attn.q_norm.weight", "model.layers.{}.self_attn.q_norm.weight"},
    {TensorRole::kKNorm, "layers.{}.attn.k_norm.weight", "model.layers.{}.self_attn.k_norm.weight"},
    {TensorRole::kFfnNorm, "layers.{}.ln2.weight",
     "model.layers.{}.post_attention_layernorm.weight"},
    // cs336: w2(silu(w1 x) * w3 x).
    {TensorRole::kGate, "layers.{}.ffn.w1.weight", "model.layers.{}.mlp.gate_proj.weight"},
    {TensorRole::kUp, "layers.{}.ffn.w3.weight", "model.layers.{}.mlp.up_proj.weight"},
    {TensorRole::kDown, "layers.{}.ffn.w2.weight", "model.layers.{}.mlp.down_proj.weight"},
};

Shape ShapeOf(const ModelConfig& config, TensorRole role) {
  switch (role) {
    case TensorRole::kTokenEmbedding:
    case TensorRole::kLmHead:
      return {config.vocab_size, config.d_model};
    case TensorRole::kFinalNorm:
    case TensorRole::kAttnNorm:
    case TensorRole::kFfnNorm:
      return {config.d_model};
    case TensorRole::kQ:
      return {config.q_size(), config.d_model};
    case TensorRole::kK:
    case TensorRole::kV:
      return {config.kv_size(), config.d_model};
    case TensorRole::kO:
      return {config.d_model, config.q_size()};
    case TensorRole::kQNorm:
    case TensorRole::kKNorm:
      return {config.head_dim};
    case TensorRole::kGate:
    case TensorRole::kUp:
      return {config.d_ff, config.d_model};
    case TensorRole::kDown:
      return {config.d_model, config.d_ff};
  }
  return {};
}

std::vector<TensorRole> LayerRoles(const ModelConfig& config) {
  std::vector<TensorRole> roles = {TensorRole::kAttnNorm, TensorRole::kQ, TensorRole::kK,
                                   TensorRole::kV};
  if (config.qk_norm) roles.insert(roles.end(), {TensorRole::kQNorm, TensorRole::kKNorm});
  roles.insert(roles.end(), {TensorRole::kO, TensorRole::kFfnNorm, TensorRole::kGate,
                             TensorRole::kUp, TensorRole::kDown});
  return roles;
}

}  // namespace

std::string TensorName(TensorNaming naming, TensorRole role, int layer) {
  for (const NameRow& row : kNames) {
    if (row.role != role) continue;
    const char* const pattern = naming == TensorNaming::kCs336 ? row.cs336 : row.hugging_face;
    return fmt::format(fmt::runtime(pattern), layer);
  }
  TLM_CHECK(false);
}

std::vector<TensorSpec> ExpectedTensors(const ModelConfig& config) {
  std::vector<TensorSpec> specs;
  const auto add = [&](TensorRole role, int layer) {
    specs.push_back({role, layer, TensorName(config.naming, role, layer), ShapeOf(config, role)});
  };
  add(TensorRole::kTokenEmbedding, -1);
  const std::vector<TensorRole> layer_roles = LayerRoles(config);
  for (int layer = 0; layer < config.num_layers; ++layer) {
    for (const TensorRole role : layer_roles) add(role, layer);
  }
  add(TensorRole::kFinalNorm, -1);
  if (!config.tie_word_embeddings) add(TensorRole::kLmHead, -1);
  return specs;
}

bool IsKnownBuffer(std::string_view name, int rank) {
  if (name.ends_with(".attn.masked_bias")) return true;
  if (name.ends_with(".attn.bias")) return rank == 4;
  // The parts of the name, from the last; a parameter's ends in "weight" or "bias".
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
