#include "tests/support/config_json.h"

#include <nlohmann/json.hpp>
#include <vector>

namespace tlm {
namespace {

using Json = nlohmann::json;

Json RopeScalingJson(const RopeScaling& scaling) {
  Json json = {{"factor", scaling.factor}};
  if (scaling.kind == RopeScaling::Kind::kLinear) {
    json["rope_type"] = "linear";
    return json;
  }
  json["original_max_position_embeddings"] = scaling.original_context_length;
  if (scaling.kind == RopeScaling::Kind::kLlama3) {
    json["rope_type"] = "llama3";
    json["low_freq_factor"] = scaling.low_freq_factor;
    json["high_freq_factor"] = scaling.high_freq_factor;
    return json;
  }
  json["rope_type"] = "yarn";
  json["beta_fast"] = scaling.beta_fast;
  json["beta_slow"] = scaling.beta_slow;
  json["attention_factor"] = scaling.attention_factor;
  json["truncate"] = scaling.truncate;
  return json;
}

// Rotary positions and windows are spelt alike everywhere.
void AddRopeAndWindow(const ModelConfig& config, Json* json) {
  if (config.rope_theta.has_value()) (*json)["rope_theta"] = *config.rope_theta;
  if (config.rope_scaling.has_value()) {
    (*json)["rope_scaling"] = RopeScalingJson(*config.rope_scaling);
  }
  if (config.sliding_window.has_value()) (*json)["sliding_window"] = *config.sliding_window;
  if (config.full_attention.empty()) return;
  std::vector<std::string> types;
  for (const bool full : config.full_attention) {
    types.push_back(full ? "full_attention" : "sliding_attention");
  }
  (*json)["layer_types"] = types;
}

Json HuggingFaceJson(const ModelConfig& config) {
  Json json = {{"vocab_size", config.vocab_size},
               {"max_position_embeddings", config.context_length},
               {"hidden_size", config.d_model},
               {"num_hidden_layers", config.num_layers},
               {"num_attention_heads", config.num_heads},
               {"num_key_value_heads", config.num_kv_heads},
               {"head_dim", config.head_dim},
               {"intermediate_size", config.d_ff},
               {"rms_norm_eps", config.norm_eps},
               {"hidden_act", "silu"},
               {"attention_bias", config.biases.attention_output},
               {"mlp_bias", config.biases.ffn},
               {"use_sliding_window", config.sliding_window.has_value()},
               {"tie_word_embeddings", config.tie_word_embeddings}};
  AddRopeAndWindow(config, &json);
  return json;
}

Json Gpt2Json(const ModelConfig& config) {
  return {{"vocab_size", config.vocab_size},
          {"n_positions", config.context_length},
          {"n_embd", config.d_model},
          {"n_layer", config.num_layers},
          {"n_head", config.num_heads},
          {"n_inner", config.d_ff},
          {"layer_norm_epsilon", config.norm_eps},
          {"activation_function", config.ffn_kind == FfnKind::kGelu ? "gelu" : "gelu_new"},
          {"tie_word_embeddings", config.tie_word_embeddings}};
}

const char* FfnType(FfnKind kind) {
  switch (kind) {
    case FfnKind::kSwiGlu:
      return "swiglu";
    case FfnKind::kSilu:
      return "silu";
    case FfnKind::kRelu:
      return "relu";
    case FfnKind::kGeluTanh:
      return "gelu_tanh";
    case FfnKind::kGelu:
      return "gelu";
  }
  return "";
}

Json Cs336Json(const ModelConfig& config) {
  Json json = {{"vocab_size", config.vocab_size}, {"context_length", config.context_length},
               {"d_model", config.d_model},       {"num_layers", config.num_layers},
               {"num_heads", config.num_heads},   {"d_ff", config.d_ff}};
  AddRopeAndWindow(config, &json);
  if (config.ffn_kind != FfnKind::kSwiGlu) json["ffn_type"] = FfnType(config.ffn_kind);
  return json;
}

Json Qwen3MhaJson(const ModelConfig& config) {
  return {{"vocab_size", config.vocab_size}, {"max_seq_len", config.context_length},
          {"d_model", config.d_model},       {"n_layer", config.num_layers},
          {"n_head", config.num_heads},      {"d_hidden", config.d_ff},
          {"rope_theta", *config.rope_theta}};
}

// Every knob by name, whether it has its default or not.
Json TransformerLmJson(const ModelConfig& config) {
  Json json = Cs336Json(config);
  json["num_kv_heads"] = config.num_kv_heads;
  json["head_dim"] = config.head_dim;
  json["norm"] = config.norm_kind == NormKind::kRms ? "rms" : "layer";
  json["norm_eps"] = config.norm_eps;
  json["norm_eps_placement"] =
      config.norm_eps_placement == NormEps::kInsideRoot ? "inside" : "outside";
  json["qk_norm"] = config.qk_norm;
  json["learned_positions"] = config.learned_positions;
  json["rope_layout"] = !config.rope_theta.has_value()                   ? "none"
                        : config.rope_layout == RopeLayout::kInterleaved ? "interleaved"
                                                                         : "half";
  json["qkv_bias"] = config.biases.qkv;
  json["attention_output_bias"] = config.biases.attention_output;
  json["ffn_bias"] = config.biases.ffn;
  json["ffn_type"] = FfnType(config.ffn_kind);
  json["tie_word_embeddings"] = config.tie_word_embeddings;
  if (config.naming == TensorNaming::kGpt2) {
    json["tensor_naming"] = "gpt2";
    return json;
  }
  const auto matrix = [](int number) { return "w" + std::to_string(number); };
  if (config.gated_ffn()) json["ffn_gate"] = matrix(config.ffn_names.gate);
  json["ffn_up"] = matrix(config.ffn_names.up);
  json["ffn_down"] = matrix(config.ffn_names.down);
  return json;
}

Json JsonOf(const ModelConfig& config) {
  if (config.model_type == "cs336") return Cs336Json(config);
  if (config.model_type == "qwen3_mha") return Qwen3MhaJson(config);
  if (config.model_type == "transformer_lm") return TransformerLmJson(config);
  if (config.model_type == "gpt2") return Gpt2Json(config);
  return HuggingFaceJson(config);
}

}  // namespace

std::string ConfigJson(const ModelConfig& config) {
  Json json = JsonOf(config);
  json["model_type"] = config.model_type;
  return json.dump(2);
}

}  // namespace tlm
