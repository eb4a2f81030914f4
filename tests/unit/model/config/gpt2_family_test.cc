#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "model/config/config_reader.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/model/config/config_text.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;
using ::testing::Optional;

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
  const auto config = ParseModelConfig(kGpt2);
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->model_type, "gpt2");
  EXPECT_EQ(config->architecture, "GPT2LMHeadModel");
  EXPECT_EQ(config->naming, TensorNaming::kGpt2);
  EXPECT_EQ(config->vocab_size, 300);
  EXPECT_EQ(config->context_length, 64);
  EXPECT_EQ(config->d_model, 48);
  EXPECT_EQ(config->num_layers, 3);
  EXPECT_EQ(config->num_heads, 6);
  EXPECT_EQ(config->num_kv_heads, 6);
  EXPECT_EQ(config->head_dim, 8);
  EXPECT_EQ(config->d_ff, 192);
  EXPECT_EQ(config->norm_kind, NormKind::kLayer);
  EXPECT_EQ(config->norm_eps, 1e-5);
  EXPECT_EQ(config->norm_eps_placement, NormEps::kInsideRoot);
  EXPECT_TRUE(config->learned_positions);
  EXPECT_FALSE(config->rope_theta.has_value());
  EXPECT_EQ(config->ffn_kind, FfnKind::kGeluTanh);
  EXPECT_TRUE(config->biases.qkv);
  EXPECT_TRUE(config->biases.attention_output);
  EXPECT_TRUE(config->biases.ffn);
  EXPECT_FALSE(config->qk_norm);
  EXPECT_TRUE(config->tie_word_embeddings);
  EXPECT_THAT(config->eos_token_ids, ElementsAre(98));
  EXPECT_THAT(config->bos_token_id, Optional(98));
}

TEST(Gpt2FamilyTest, FillsInWhatHuggingFaceDoes) {
  const auto config = ParseModelConfig(R"({"model_type": "gpt2", "vocab_size": 9, "n_positions": 8,
      "n_embd": 6, "n_layer": 1, "n_head": 2})");
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->d_ff, 24);
  EXPECT_EQ(config->norm_eps, 1e-5);
  EXPECT_EQ(config->ffn_kind, FfnKind::kGeluTanh);
  EXPECT_TRUE(config->tie_word_embeddings);
}

TEST(Gpt2FamilyTest, ExplicitValuesReplaceDefaults) {
  const auto config = ParseModelConfig(
      With(kGpt2, R"({"n_inner": 100, "layer_norm_epsilon": 1e-6, "tie_word_embeddings": false})"));
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->d_ff, 100);
  EXPECT_EQ(config->norm_eps, 1e-6);
  EXPECT_FALSE(config->tie_word_embeddings);
}

TEST(Gpt2FamilyTest, GeneralNamesStandForItsOwn) {
  const auto config = ParseModelConfig(R"({"model_type": "gpt2", "vocab_size": 9,
      "max_position_embeddings": 8, "hidden_size": 6, "num_hidden_layers": 1,
      "num_attention_heads": 2})");
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->context_length, 8);
  EXPECT_EQ(config->d_model, 6);
  const auto old = ParseModelConfig(With(kGpt2, R"({"n_positions": "absent", "n_ctx": 32})"));
  ASSERT_THAT(old, IsOk());
  EXPECT_EQ(old->context_length, 32);
}

TEST(Gpt2FamilyTest, KnowsTheActivationsByAllTheirNames) {
  const std::pair<const char*, FfnKind> kCases[] = {
      {"gelu_new", FfnKind::kGeluTanh},  {"gelu_pytorch_tanh", FfnKind::kGeluTanh},
      {"gelu_fast", FfnKind::kGeluTanh}, {"gelu", FfnKind::kGelu},
      {"relu", FfnKind::kRelu},          {"silu", FfnKind::kSilu},
      {"swish", FfnKind::kSilu}};
  for (const auto& [name, kind] : kCases) {
    const auto config =
        ParseModelConfig(With(kGpt2, R"({"activation_function": ")" + std::string(name) + R"("})"));
    ASSERT_THAT(config, IsOk()) << name;
    EXPECT_EQ(config->ffn_kind, kind) << name;
  }
}

class RefusedGpt2Test : public ::testing::TestWithParam<Refusal> {};

TEST_P(RefusedGpt2Test, NamesTheFieldAndItsValue) { ExpectRefused(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    All, RefusedGpt2Test,
    ::testing::Values(
        Refusal{"width", kGpt2, R"({"n_embd": "absent"})", kBad, "n_embd is missing"},
        Refusal{"positions", kGpt2, R"({"n_positions": "absent", "n_ctx": "absent"})", kBad,
                "n_positions is missing"},
        Refusal{"uneven_heads", kGpt2, R"({"n_head": 7})", kBad,
                "n_embd is 48, it must be a multiple of n_head, which is 7"},
        Refusal{"inner_zero", kGpt2, R"({"n_inner": 0})", kBad, "n_inner is 0"},
        Refusal{"inner_float", kGpt2, R"({"n_inner": 96.5})", kBad, "n_inner is 96.5"},
        Refusal{"activation", kGpt2, R"({"activation_function": "quick_gelu"})", kBad,
                "activation_function is 'quick_gelu', it must be one of gelu_new"},
        Refusal{"unscaled", kGpt2, R"({"scale_attn_weights": false})", kUnsupported,
                "scale_attn_weights is false, only true is supported"},
        Refusal{"scaled_by_layer", kGpt2, R"({"scale_attn_by_inverse_layer_idx": true})",
                kUnsupported, "scale_attn_by_inverse_layer_idx is true"},
        Refusal{"cross_attention", kGpt2, R"({"add_cross_attention": true})", kUnsupported,
                "add_cross_attention is true"},
        Refusal{"quantised", kGpt2, R"({"quantization_config": {"quant_method": "gptq"}})",
                kUnsupported, "quant_method is 'gptq'"},
        Refusal{"eps_string", kGpt2, R"({"layer_norm_epsilon": "small"})", kBad,
                "layer_norm_epsilon is 'small'"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tlm
