#include "tests/support/small_config.h"

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
// ---------------------------------------------------------------------------------------

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
// ---------------------------------------------------------------------------------

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
// ----------------------------------------------------------------------------
//
// Where eps stands shows only when it is not small beside the row's own mean square.

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

// QK-norm takes eps and its place from the other norms, but stays an RMSNorm beside LayerNorms.
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
  config.biases = {.qkv = true, .attention_output = false, .ffn = true};  // of the gate too
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

// GPT-2's layout, which fuses query, key and value, of a model that is otherwise none.
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

}  // namespace tlm
