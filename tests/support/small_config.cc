#include "tests/support/small_config.h"

#include <nlohmann/json.hpp>

#include "model/base/errors.h"

namespace tlm {
namespace {

ModelConfig Base(const char* model_type) {
  ModelConfig config;
  config.model_type = model_type;
  config.architecture = model_type;
  config.vocab_size = 131;
  config.context_length = 256;
  config.d_model = 48;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_kv_heads = 4;
  config.head_dim = 12;
  config.d_ff = 100;
  return config;
}

// --- Course

ModelConfig Cs336WithoutPositions() {
  ModelConfig config = Base("cs336");
  config.naming = TensorNaming::kCs336;
  return config;
}

ModelConfig Cs336() {
  ModelConfig config = Cs336WithoutPositions();
  config.rope_theta = 10000.0;
  config.rope_layout = RopeLayout::kInterleaved;
  return config;
}

ModelConfig Cs336Ungated(FfnKind kind) {
  ModelConfig config = Cs336();
  config.ffn_kind = kind;
  config.ffn_names = {.gate = 3, .up = 1, .down = 2};
  return config;
}
ModelConfig Cs336Silu() { return Cs336Ungated(FfnKind::kSilu); }
ModelConfig Cs336Relu() { return Cs336Ungated(FfnKind::kRelu); }

ModelConfig Qwen3Mha() {
  ModelConfig config = Base("qwen3_mha");
  config.naming = TensorNaming::kQwen3Mha;
  config.rope_theta = 10000.0;
  config.norm_eps = 1e-6;
  config.qk_norm = true;
  return config;
}

// --- Hugging Face

ModelConfig HuggingFace(const char* model_type) {
  ModelConfig config = Base(model_type);
  config.naming = TensorNaming::kHuggingFace;
  config.num_kv_heads = 2;
  config.rope_theta = 10000.0;
  config.norm_eps = 1e-6;
  return config;
}

ModelConfig Llama() { return HuggingFace("llama"); }

ModelConfig LlamaTiedWithBiases() {
  ModelConfig config = Llama();
  config.biases = {.qkv = true, .attention_output = true, .ffn = true};
  config.tie_word_embeddings = true;
  return config;
}

ModelConfig LlamaLinear() {
  ModelConfig config = Llama();
  config.rope_scaling = RopeScaling{.kind = RopeScaling::Kind::kLinear, .factor = 2.5};
  return config;
}

ModelConfig LlamaLlama3() {
  ModelConfig config = Llama();
  config.rope_theta = 500.0;  // slow, medium and fast pairs among the six
  config.rope_scaling = RopeScaling{.kind = RopeScaling::Kind::kLlama3,
                                    .factor = 8.0,
                                    .low_freq_factor = 1.0,
                                    .high_freq_factor = 4.0,
                                    .original_context_length = 100};
  return config;
}

ModelConfig LlamaYarn(bool truncate) {
  ModelConfig config = Llama();
  config.rope_theta = 500.0;
  config.rope_scaling = RopeScaling{.kind = RopeScaling::Kind::kYarn,
                                    .factor = 4.0,
                                    .original_context_length = 64,
                                    .beta_fast = 8.0,
                                    .beta_slow = 0.5,
                                    .attention_factor = 1.25,
                                    .truncate = truncate};
  return config;
}
ModelConfig LlamaYarnTruncated() { return LlamaYarn(true); }
ModelConfig LlamaYarnExact() { return LlamaYarn(false); }

ModelConfig Mistral() {
  ModelConfig config = HuggingFace("mistral");
  config.sliding_window = 50;
  return config;
}

ModelConfig Qwen2() {
  ModelConfig config = HuggingFace("qwen2");
  config.biases.qkv = true;
  return config;
}

ModelConfig Qwen2SomeLayersSliding() {
  ModelConfig config = Qwen2();
  config.sliding_window = 77;
  config.full_attention = {true, false};
  return config;
}

ModelConfig Qwen3() {
  ModelConfig config = HuggingFace("qwen3");
  config.qk_norm = true;
  config.head_dim = 20;
  config.tie_word_embeddings = true;
  return config;
}

ModelConfig Qwen3Untied() {
  ModelConfig config = Qwen3();
  config.tie_word_embeddings = false;
  return config;
}

ModelConfig Gpt2() {
  ModelConfig config = Base("gpt2");
  config.naming = TensorNaming::kGpt2;
  config.norm_kind = NormKind::kLayer;
  config.learned_positions = true;
  config.ffn_kind = FfnKind::kGeluTanh;
  config.biases = {.qkv = true, .attention_output = true, .ffn = true};
  config.tie_word_embeddings = true;
  return config;
}

ModelConfig Gpt2ExactGelu() {
  ModelConfig config = Gpt2();
  config.ffn_kind = FfnKind::kGelu;
  config.tie_word_embeddings = false;
  return config;
}

// --- The generic model
//
// The place of eps matters only when eps is not small compared with the row's own mean square.

ModelConfig Generic() {
  ModelConfig config = Base("transformer_lm");
  config.naming = TensorNaming::kCs336;
  return config;
}

// x / (rms + eps) and w3(silu(w1 x) * w2 x).
ModelConfig CourseVariant() {
  ModelConfig config = Generic();
  config.rope_theta = 10000.0;
  config.rope_layout = RopeLayout::kInterleaved;
  config.norm_eps = 0.05;
  config.norm_eps_placement = NormEps::kOutsideRoot;
  config.ffn_names = {.gate = 1, .up = 2, .down = 3};
  return config;
}

ModelConfig LayerNormOutside() {
  ModelConfig config = Generic();
  config.norm_kind = NormKind::kLayer;
  config.norm_eps = 0.05;
  config.norm_eps_placement = NormEps::kOutsideRoot;
  config.learned_positions = true;
  config.ffn_kind = FfnKind::kGelu;
  config.ffn_names = {.gate = 2, .up = 3, .down = 1};
  config.biases = {.qkv = false, .attention_output = true, .ffn = true};
  config.tie_word_embeddings = true;
  return config;
}

// QK-norm takes eps and its place from the other norms, but stays an RMSNorm next to LayerNorms.
ModelConfig LayerNormWithQkNorm() {
  ModelConfig config = Generic();
  config.norm_kind = NormKind::kLayer;
  config.norm_eps = 0.05;
  config.norm_eps_placement = NormEps::kOutsideRoot;
  config.qk_norm = true;
  config.num_kv_heads = 1;
  config.head_dim = 10;
  config.rope_theta = 500.0;
  config.rope_layout = RopeLayout::kHalf;
  config.biases = {.qkv = true, .attention_output = false, .ffn = true};  // for the gate, too
  return config;
}

ModelConfig OddHeads() {
  ModelConfig config = Generic();
  config.d_model = 45;
  config.num_heads = 6;
  config.num_kv_heads = 3;
  config.head_dim = 7;
  config.d_ff = 33;
  config.qk_norm = true;
  config.ffn_kind = FfnKind::kGeluTanh;
  config.ffn_names = {.gate = 3, .up = 1, .down = 2};
  return config;
}

ModelConfig EveryPosition() {
  ModelConfig config = Generic();
  config.num_layers = 3;
  config.learned_positions = true;
  config.rope_theta = 100.0;
  config.rope_layout = RopeLayout::kInterleaved;
  config.rope_scaling = RopeScaling{.kind = RopeScaling::Kind::kLinear, .factor = 4.0};
  config.sliding_window = 65;
  config.full_attention = {false, true, false};
  return config;
}

// GPT-2's layout, which fuses query, key and value, for a model that is not GPT-2 otherwise.
ModelConfig Gpt2Layout() {
  ModelConfig config = Generic();
  config.naming = TensorNaming::kGpt2;
  config.num_kv_heads = 2;
  config.head_dim = 18;
  config.rope_theta = 10000.0;
  config.rope_layout = RopeLayout::kHalf;
  config.sliding_window = 9;
  config.ffn_kind = FfnKind::kSilu;
  config.ffn_names = {.gate = 3, .up = 1, .down = 2};
  return config;
}

struct Row {
  const char* name;
  ModelConfig (*make)();
};

constexpr Row kRows[] = {
    {"cs336", Cs336},
    {"qwen3_mha", Qwen3Mha},
    {"llama", Llama},
    {"mistral", Mistral},
    {"qwen2", Qwen2},
    {"qwen3", Qwen3},
    {"gpt2", Gpt2},
    {"cs336_without_positions", Cs336WithoutPositions},
    {"cs336_silu", Cs336Silu},
    {"cs336_relu", Cs336Relu},
    {"llama_tied_with_biases", LlamaTiedWithBiases},
    {"llama_linear", LlamaLinear},
    {"llama_llama3", LlamaLlama3},
    {"llama_yarn", LlamaYarnTruncated},
    {"llama_yarn_exact", LlamaYarnExact},
    {"qwen2_some_layers_sliding", Qwen2SomeLayersSliding},
    {"qwen3_untied", Qwen3Untied},
    {"gpt2_exact_gelu", Gpt2ExactGelu},
    {"lm_course_variant", CourseVariant},
    {"lm_layer_norm_outside", LayerNormOutside},
    {"lm_layer_norm_with_qk_norm", LayerNormWithQkNorm},
    {"lm_odd_heads", OddHeads},
    {"lm_every_position", EveryPosition},
    {"lm_gpt2_layout", Gpt2Layout},
};

// --- In the spelling of the families' files

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

// Rotary positions and windows have the same spelling everywhere.
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

// Writes every config field, with or without a default value.
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

ModelConfig SmallConfig(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name) return row.make();
  }
  TLM_CHECK(false);
}

std::vector<const char*> SmallConfigNames() {
  std::vector<const char*> names;
  for (const Row& row : kRows) names.push_back(row.name);
  return names;
}

std::string ConfigJson(const ModelConfig& config) {
  Json json = JsonOf(config);
  json["model_type"] = config.model_type;
  return json.dump(2);
}

}  // namespace tlm
