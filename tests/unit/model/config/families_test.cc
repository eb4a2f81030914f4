#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "model/config/config_reader.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/model/config/config_text.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Optional;

constexpr char kCs336[] = R"({"vocab_size": 512, "context_length": 128, "d_model": 64,
    "num_layers": 5, "num_heads": 8, "d_ff": 172, "rope_theta": 10000.0})";
constexpr char kQwen3Mha[] = R"({"model_type": "qwen3_mha", "d_model": 24, "n_head": 3,
    "d_hidden": 41, "n_layer": 2, "vocab_size": 61})";

TEST(CourseFamiliesTest, ReadsCs336) {
  const ModelConfig config = Parsed(kCs336);
  EXPECT_EQ(config.model_type, "cs336");
  EXPECT_EQ(config.architecture, "TransformerLM");
  EXPECT_EQ(config.naming, TensorNaming::kCs336);
  EXPECT_EQ(config.vocab_size, 512);
  EXPECT_EQ(config.context_length, 128);
  EXPECT_EQ(config.d_model, 64);
  EXPECT_EQ(config.num_layers, 5);
  EXPECT_EQ(config.num_heads, 8);
  EXPECT_EQ(config.num_kv_heads, 8);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.d_ff, 172);
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_THAT(config.rope_theta, Optional(10000.0));
  EXPECT_EQ(config.rope_layout, RopeLayout::kInterleaved);
  EXPECT_FALSE(config.qk_norm);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_THAT(config.eos_token_ids, IsEmpty());
  EXPECT_FALSE(config.bos_token_id.has_value());
}

TEST(CourseFamiliesTest, Cs336WithoutThetaHasNoPositions) {
  for (const char* change : {R"({"rope_theta": null})", R"({"rope_theta": "absent"})"}) {
    const ModelConfig config = Parsed(With(kCs336, change));
    EXPECT_FALSE(config.rope_theta.has_value()) << change;
  }
}

TEST(CourseFamiliesTest, Cs336TakesItsOwnEpsAndIntegerTheta) {
  const ModelConfig config =
      Parsed(With(kCs336, R"({"model_type": "cs336", "eps": 1e-6, "rope_theta": 500})"));
  EXPECT_EQ(config.norm_eps, 1e-6);
  EXPECT_THAT(config.rope_theta, Optional(500.0));
}

TEST(CourseFamiliesTest, Cs336TakesTheUngatedAblations) {
  const std::pair<const char*, FfnKind> kCases[] = {{"swiglu", FfnKind::kSwiGlu},
                                                    {"silu", FfnKind::kSilu},
                                                    {"relu", FfnKind::kRelu},
                                                    {"gelu", FfnKind::kGelu}};
  for (const auto& [name, kind] : kCases) {
    const ModelConfig config =
        Parsed(With(kCs336, R"({"ffn_type": ")" + std::string(name) + R"("})"));
    EXPECT_EQ(config.ffn_kind, kind) << name;
    EXPECT_EQ(config.ffn_names.up, config.gated_ffn() ? 3 : 1) << name;
    EXPECT_EQ(config.ffn_names.down, 2) << name;
  }
}

TEST(CourseFamiliesTest, Cs336PassesOverWhatTheNotebookKeepsBeside) {
  EXPECT_THAT(ParseModelConfig(With(kCs336, R"({"device": "cuda", "weight_decay": 0.1,
                                                "optimizer": {"betas": [0.9, 0.95]}})")),
              IsOk());
}

TEST(CourseFamiliesTest, ReadsQwen3Mha) {
  const ModelConfig config = Parsed(kQwen3Mha);
  EXPECT_EQ(config.model_type, "qwen3_mha");
  EXPECT_EQ(config.naming, TensorNaming::kQwen3Mha);
  EXPECT_EQ(config.vocab_size, 61);
  EXPECT_EQ(config.context_length, 8192);
  EXPECT_EQ(config.d_model, 24);
  EXPECT_EQ(config.num_layers, 2);
  EXPECT_EQ(config.num_heads, 3);
  EXPECT_EQ(config.num_kv_heads, 3);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.d_ff, 41);
  EXPECT_EQ(config.norm_kind, NormKind::kRms);
  EXPECT_EQ(config.norm_eps, 1e-6);
  EXPECT_THAT(config.rope_theta, Optional(10000.0));
  EXPECT_EQ(config.rope_layout, RopeLayout::kHalf);
  EXPECT_TRUE(config.qk_norm);
  EXPECT_EQ(config.ffn_kind, FfnKind::kSwiGlu);
  EXPECT_FALSE(config.tie_word_embeddings);
}

TEST(CourseFamiliesTest, Qwen3MhaTakesItsOwnValuesAndOtherSpellings) {
  const ModelConfig own =
      Parsed(With(kQwen3Mha, R"({"max_seq_len": 96, "rope_theta": 5000, "rms_norm_eps": 1e-5})"));
  EXPECT_EQ(own.context_length, 96);
  EXPECT_THAT(own.rope_theta, Optional(5000.0));
  EXPECT_EQ(own.norm_eps, 1e-5);
  const ModelConfig other = Parsed(
      R"({"model_type": "qwen3_mha", "d_model": 24, "num_heads": 3, "d_ff": 41, "num_layers": 2,
          "vocab_size": 61, "context_length": 77})");
  EXPECT_EQ(other.context_length, 77);
  EXPECT_EQ(other.d_ff, 41);
}

TEST(RefusedFamilyTest, CourseNamesTheFieldAndItsValue) {
  ExpectRefused(kCs336, {{R"({"ffn_type": "geglu"})",
                          "ffn_type is 'geglu', it must be one of swiglu, silu, relu, gelu"},
                         {R"({"num_heads": "absent"})", "num_heads is missing"},
                         {R"({"context_length": "absent"})", "context_length is missing"}});
  ExpectRefused(kQwen3Mha,
                {{R"({"d_hidden": "absent"})", "d_ff is missing"},
                 {R"({"n_head": 5})", "d_model is 24, it must be a multiple of n_head, which is 5"},
                 {R"({"max_seq_len": -1})", "max_seq_len is -1"},
                 {R"({"n_head": 8})", "head_dim is 3"}});
}

// As published, but for the size.
constexpr char kGpt2[] =
    R"({"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
    "attn_pdrop": 0.1, "bos_token_id": 98, "embd_pdrop": 0.1, "eos_token_id": 98,
    "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 64,
    "n_embd": 48, "n_head": 6, "n_layer": 3, "n_positions": 64, "resid_pdrop": 0.1,
    "summary_activation": null, "summary_first_dropout": 0.1, "summary_proj_to_labels": true,
    "summary_type": "cls_index", "summary_use_proj": true,
    "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}},
    "vocab_size": 300})";

TEST(Gpt2FamilyTest, ReadsAPublishedFile) {
  const ModelConfig config = Parsed(kGpt2);
  EXPECT_EQ(config.model_type, "gpt2");
  EXPECT_EQ(config.architecture, "GPT2LMHeadModel");
  EXPECT_EQ(config.naming, TensorNaming::kGpt2);
  EXPECT_EQ(config.vocab_size, 300);
  EXPECT_EQ(config.context_length, 64);
  EXPECT_EQ(config.d_model, 48);
  EXPECT_EQ(config.num_layers, 3);
  EXPECT_EQ(config.num_heads, 6);
  EXPECT_EQ(config.num_kv_heads, 6);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.d_ff, 192);
  EXPECT_EQ(config.norm_kind, NormKind::kLayer);
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_EQ(config.norm_eps_placement, NormEps::kInsideRoot);
  EXPECT_TRUE(config.learned_positions);
  EXPECT_FALSE(config.rope_theta.has_value());
  EXPECT_EQ(config.ffn_kind, FfnKind::kGeluTanh);
  EXPECT_TRUE(config.biases.qkv);
  EXPECT_TRUE(config.biases.attention_output);
  EXPECT_TRUE(config.biases.ffn);
  EXPECT_FALSE(config.qk_norm);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_THAT(config.eos_token_ids, ElementsAre(98));
  EXPECT_THAT(config.bos_token_id, Optional(98));
}

TEST(Gpt2FamilyTest, FillsInWhatHuggingFaceDoes) {
  const ModelConfig config = Parsed(R"({"model_type": "gpt2", "vocab_size": 9, "n_positions": 8,
      "n_embd": 6, "n_layer": 1, "n_head": 2})");
  EXPECT_EQ(config.d_ff, 24);
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_EQ(config.ffn_kind, FfnKind::kGeluTanh);
  EXPECT_TRUE(config.tie_word_embeddings);
}

TEST(Gpt2FamilyTest, ExplicitValuesReplaceDefaults) {
  const ModelConfig config = Parsed(
      With(kGpt2, R"({"n_inner": 100, "layer_norm_epsilon": 1e-6, "tie_word_embeddings": false})"));
  EXPECT_EQ(config.d_ff, 100);
  EXPECT_EQ(config.norm_eps, 1e-6);
  EXPECT_FALSE(config.tie_word_embeddings);
}

TEST(Gpt2FamilyTest, GeneralNamesStandForItsOwn) {
  const ModelConfig config = Parsed(R"({"model_type": "gpt2", "vocab_size": 9,
      "max_position_embeddings": 8, "hidden_size": 6, "num_hidden_layers": 1,
      "num_attention_heads": 2})");
  EXPECT_EQ(config.context_length, 8);
  EXPECT_EQ(config.d_model, 6);
  const ModelConfig old = Parsed(With(kGpt2, R"({"n_positions": "absent", "n_ctx": 32})"));
  EXPECT_EQ(old.context_length, 32);
}

TEST(Gpt2FamilyTest, KnowsTheActivationsByAllTheirNames) {
  const std::pair<const char*, FfnKind> kCases[] = {
      {"gelu_new", FfnKind::kGeluTanh},  {"gelu_pytorch_tanh", FfnKind::kGeluTanh},
      {"gelu_fast", FfnKind::kGeluTanh}, {"gelu", FfnKind::kGelu},
      {"relu", FfnKind::kRelu},          {"silu", FfnKind::kSilu},
      {"swish", FfnKind::kSilu}};
  for (const auto& [name, kind] : kCases) {
    const ModelConfig config =
        Parsed(With(kGpt2, R"({"activation_function": ")" + std::string(name) + R"("})"));
    EXPECT_EQ(config.ffn_kind, kind) << name;
  }
}

TEST(RefusedFamilyTest, Gpt2NamesTheFieldAndItsValue) {
  ExpectRefused(kGpt2,
                {{R"({"n_embd": "absent"})", "n_embd is missing"},
                 {R"({"n_positions": "absent", "n_ctx": "absent"})", "n_positions is missing"},
                 {R"({"n_head": 7})", "n_embd is 48, it must be a multiple of n_head, which is 7"},
                 {R"({"n_inner": 0})", "n_inner is 0"},
                 {R"({"n_inner": 96.5})", "n_inner is 96.5"},
                 {R"({"activation_function": "quick_gelu"})",
                  "activation_function is 'quick_gelu', it must be one of gelu_new"},
                 {R"({"scale_attn_weights": false})",
                  "scale_attn_weights is false, only true is supported", kUnsupported},
                 {R"({"scale_attn_by_inverse_layer_idx": true})",
                  "scale_attn_by_inverse_layer_idx is true", kUnsupported},
                 {R"({"add_cross_attention": true})", "add_cross_attention is true", kUnsupported},
                 {R"({"quantization_config": {"quant_method": "gptq"}})", "quant_method is 'gptq'",
                  kUnsupported},
                 {R"({"layer_norm_epsilon": "small"})", "layer_norm_epsilon is 'small'"}});
}

constexpr char kLlama[] = R"({"model_type": "llama", "vocab_size": 512, "hidden_size": 64,
    "intermediate_size": 172, "num_hidden_layers": 5, "num_attention_heads": 8,
    "max_position_embeddings": 128})";
constexpr char kQwen3[] = R"({"model_type": "qwen3", "vocab_size": 512, "hidden_size": 64,
    "intermediate_size": 172, "num_hidden_layers": 5, "num_attention_heads": 8,
    "num_key_value_heads": 2, "max_position_embeddings": 128})";

std::string Mistral() { return With(kLlama, R"({"model_type": "mistral"})"); }
std::string Qwen2() { return With(kQwen3, R"({"model_type": "qwen2"})"); }

TEST(LlamaFamiliesTest, LlamaFillsInWhatHuggingFaceDoes) {
  const ModelConfig config = Parsed(kLlama);
  EXPECT_EQ(config.model_type, "llama");
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.naming, TensorNaming::kHuggingFace);
  EXPECT_EQ(config.num_kv_heads, 8);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.norm_eps, 1e-6);
  EXPECT_THAT(config.rope_theta, Optional(10000.0));
  EXPECT_EQ(config.rope_layout, RopeLayout::kHalf);
  EXPECT_FALSE(config.qk_norm);
  EXPECT_FALSE(config.tie_word_embeddings);
}

TEST(LlamaFamiliesTest, Qwen3FillsInWhatHuggingFaceDoes) {
  const ModelConfig config = Parsed(kQwen3);
  EXPECT_EQ(config.model_type, "qwen3");
  EXPECT_EQ(config.architecture, "Qwen3ForCausalLM");
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.head_dim, 128);
  EXPECT_EQ(config.norm_eps, 1e-6);
  EXPECT_TRUE(config.qk_norm);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_FALSE(config.biases.qkv);
  EXPECT_FALSE(config.sliding_window.has_value());
}

TEST(LlamaFamiliesTest, ExplicitValuesReplaceDefaults) {
  const ModelConfig config =
      Parsed(With(kLlama, R"({"num_key_value_heads": 4, "head_dim": 16, "rms_norm_eps": 1e-5,
                       "rope_theta": 500000.0, "tie_word_embeddings": true, "bos_token_id": 7,
                       "eos_token_id": [9, 8], "architectures": ["Mine"]})"));
  EXPECT_EQ(config.num_kv_heads, 4);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_THAT(config.rope_theta, Optional(500000.0));
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_THAT(config.bos_token_id, Optional(7));
  EXPECT_THAT(config.eos_token_ids, ElementsAre(9, 8));
  EXPECT_EQ(config.architecture, "Mine");
}

TEST(LlamaFamiliesTest, NullMeansTheDefault) {
  const ModelConfig config = Parsed(
      With(kLlama, R"({"head_dim": null, "num_key_value_heads": null, "rope_scaling": null})"));
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.num_kv_heads, 8);
}

TEST(LlamaFamiliesTest, LlamaBiasesAreOfAllFourProjectionsAndOfTheFfn) {
  const ModelConfig attention = Parsed(With(kLlama, R"({"attention_bias": true})"));
  EXPECT_TRUE(attention.biases.qkv);
  EXPECT_TRUE(attention.biases.attention_output);
  EXPECT_FALSE(attention.biases.ffn);
  const ModelConfig ffn = Parsed(With(kLlama, R"({"mlp_bias": true})"));
  EXPECT_FALSE(ffn.biases.qkv);
  EXPECT_TRUE(ffn.biases.ffn);
}

TEST(LlamaFamiliesTest, LlamaHasNoWindow) {
  const ModelConfig config = Parsed(With(kLlama, R"({"sliding_window": 5})"));
  EXPECT_FALSE(config.sliding_window.has_value());
}

TEST(LlamaFamiliesTest, MistralFillsInWhatHuggingFaceDoes) {
  const ModelConfig config =
      Parsed(With(Mistral(), R"({"num_attention_heads": 16, "max_position_embeddings": 8192})"));
  EXPECT_EQ(config.model_type, "mistral");
  EXPECT_EQ(config.architecture, "MistralForCausalLM");
  EXPECT_EQ(config.num_kv_heads, 8);
  EXPECT_EQ(config.head_dim, 4);
  EXPECT_EQ(config.norm_eps, 1e-6);
  EXPECT_THAT(config.rope_theta, Optional(10000.0));
  EXPECT_THAT(config.sliding_window, Optional(4096));
  EXPECT_THAT(config.full_attention, IsEmpty());
  EXPECT_THAT(config.eos_token_ids, ElementsAre(2));
}

TEST(LlamaFamiliesTest, MistralWindowsShorterThanTheContextCount) {
  const auto window_of = [](const char* change) {
    const auto config = ParseModelConfig(With(Mistral(), change));
    EXPECT_THAT(config, IsOk()) << change;
    return config.ok() ? config->WindowOf(3) : -1;
  };
  EXPECT_EQ(window_of(R"({"sliding_window": 7})"), 7);
  EXPECT_EQ(window_of(R"({"sliding_window": 127})"), 127);
  EXPECT_EQ(window_of(R"({"sliding_window": 128})"), 0);
  EXPECT_EQ(window_of(R"({"sliding_window": 9223372036854775807})"), 0);
  EXPECT_EQ(window_of(R"({"sliding_window": null})"), 0);
  EXPECT_EQ(window_of("{}"), 0);  // 4096
}

TEST(LlamaFamiliesTest, MistralTakesItsOwnHeadDim) {
  const ModelConfig config =
      Parsed(With(Mistral(), R"({"head_dim": 128, "num_key_value_heads": 4})"));
  EXPECT_EQ(config.head_dim, 128);
  EXPECT_EQ(config.num_kv_heads, 4);
}

TEST(LlamaFamiliesTest, Qwen2AlwaysHasBiasesOfQueryKeyAndValueAlone) {
  const ModelConfig config = Parsed(Qwen2());
  EXPECT_EQ(config.architecture, "Qwen2ForCausalLM");
  EXPECT_TRUE(config.biases.qkv);
  EXPECT_FALSE(config.biases.attention_output);
  EXPECT_FALSE(config.biases.ffn);
  EXPECT_FALSE(config.qk_norm);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.norm_eps, 1e-6);
}

TEST(LlamaFamiliesTest, Qwen3MayHaveBiasesOfAllFourProjections) {
  const ModelConfig config = Parsed(With(kQwen3, R"({"attention_bias": true})"));
  EXPECT_TRUE(config.biases.qkv);
  EXPECT_TRUE(config.biases.attention_output);
}

TEST(LlamaFamiliesTest, KvHeadsLeftOutAreNeverMoreThanHeads) {
  const ModelConfig few = Parsed(With(kQwen3, R"({"num_key_value_heads": "absent"})"));
  EXPECT_EQ(few.num_kv_heads, 8);
  const ModelConfig many =
      Parsed(With(kQwen3, R"({"num_key_value_heads": "absent", "num_attention_heads": 64})"));
  EXPECT_EQ(many.num_kv_heads, 32);
}

std::vector<int64_t> QwenWindows(const char* change) {
  std::vector<int64_t> windows;
  for (const std::string& base : {Qwen2(), std::string(kQwen3)}) {
    const auto config = ParseModelConfig(With(base, change));
    EXPECT_THAT(config, IsOk()) << change;
    if (!config.ok()) return {-1};
    std::vector<int64_t> found;
    for (int64_t layer = 0; layer < config->num_layers; ++layer) {
      found.push_back(config->WindowOf(layer));
    }
    EXPECT_TRUE(windows.empty() || windows == found) << change;
    windows = found;
  }
  return windows;
}

TEST(LlamaFamiliesTest, QwenWindowsStartAtMaxWindowLayers) {
  EXPECT_THAT(QwenWindows(R"({"use_sliding_window": true, "sliding_window": 4,
                              "max_window_layers": 3})"),
              ElementsAre(0, 0, 0, 4, 4));
  EXPECT_THAT(QwenWindows(R"({"use_sliding_window": true, "sliding_window": 4,
                              "max_window_layers": 0})"),
              ElementsAre(4, 4, 4, 4, 4));
  EXPECT_THAT(QwenWindows(R"({"use_sliding_window": true, "sliding_window": 4,
                              "max_window_layers": -7})"),
              ElementsAre(4, 4, 4, 4, 4));
}

TEST(LlamaFamiliesTest, QwenLayerTypesSayWhichLayersHaveTheWindow) {
  EXPECT_THAT(QwenWindows(R"({"use_sliding_window": true, "sliding_window": 4,
                              "max_window_layers": 5,
                              "layer_types": ["sliding_attention", "full_attention",
                                              "sliding_attention", "full_attention",
                                              "sliding_attention"]})"),
              ElementsAre(4, 0, 4, 0, 4));
}

TEST(LlamaFamiliesTest, QwenWindowsThatChangeNothingAreNone) {
  for (const char* change :
       {"{}", R"({"use_sliding_window": false, "sliding_window": 4, "max_window_layers": 0})",
        R"({"use_sliding_window": false, "sliding_window": 0})",
        R"({"use_sliding_window": true, "sliding_window": null, "max_window_layers": 0})",
        R"({"use_sliding_window": true, "sliding_window": 128, "max_window_layers": 0})",
        R"({"use_sliding_window": true, "sliding_window": 4})",
        R"({"layer_types": ["full_attention", "full_attention", "full_attention",
                            "full_attention", "full_attention"]})"}) {
    const ModelConfig config = Parsed(With(Qwen2(), change));
    EXPECT_FALSE(config.sliding_window.has_value()) << change;
    EXPECT_THAT(config.full_attention, IsEmpty()) << change;
  }
}

TEST(LlamaFamiliesTest, AcceptsVariantsThatChangeNothing) {
  for (const char* change :
       {R"({"rope_scaling": {"type": "default"}})", R"({"partial_rotary_factor": 1.0})",
        R"({"attention_bias": false, "mlp_bias": false, "hidden_act": "silu"})",
        R"({"hidden_act": "swish"})", R"({"quantization_config": null})",
        R"({"something_else": {"entirely": [1, 2]}})"}) {
    EXPECT_THAT(ParseModelConfig(With(kQwen3, change)), IsOk()) << change;
  }
}

TEST(RefusedFamilyTest, LlamaNamesTheFieldAndItsValue) {
  ExpectRefused(kQwen3,
                {{R"({"hidden_act": "gelu"})", "hidden_act is 'gelu', only 'silu'", kUnsupported},
                 {R"({"num_hidden_layers": 1, "layer_types": ["linear_attention"]})",
                  "layer_types names 'linear_attention'", kUnsupported},
                 {R"({"layer_types": ["full_attention"]})",
                  "layer_types has 1 elements, it must have one for each of 5 layers"},
                 {R"({"max_window_layers": "x"})", "max_window_layers is 'x'"},
                 {R"({"use_sliding_window": 1})", "use_sliding_window is 1"}});
  ExpectRefused(kLlama, {{R"({"hidden_act": 3})", "hidden_act is 3"},
                         {R"({"attention_bias": "yes"})", "attention_bias is 'yes'"},
                         {R"({"mlp_bias": 1})", "mlp_bias is 1"},
                         {R"({"num_hidden_layers": 1, "layer_types": ["sliding_attention"]})",
                          "layer_types names 'sliding_attention'", kUnsupported}});
  ExpectRefused(Mistral(), {{R"({"sliding_window": 0})", "sliding_window is 0, it must be above 0"},
                            {R"({"sliding_window": -4})", "sliding_window is -4"},
                            {R"({"sliding_window": 4.0})", "sliding_window is 4.0"},
                            {R"({"sliding_window": 4, "num_hidden_layers": 2,
                    "layer_types": ["sliding_attention", "full_attention"]})",
                             "layer_types names 'full_attention'", kUnsupported}});
  ExpectRefused(Qwen2(),
                {{R"({"layer_types": []})", "layer_types has 0 elements"},
                 {R"({"num_hidden_layers": 1, "layer_types": ["sliding_attention"]})",
                  "layer_types names 'sliding_attention', but sliding_window"},
                 {R"({"use_sliding_window": true, "sliding_window": 0, "max_window_layers": 0})",
                  "sliding_window is 0"},
                 {R"({"hidden_size": 63})",
                  "hidden_size is 63, it must be a multiple of num_attention_heads"}});
}

}  // namespace
}  // namespace tlm
