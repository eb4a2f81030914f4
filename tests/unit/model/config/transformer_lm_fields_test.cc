#include "model/config/transformer_lm_fields.h"

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
using ::testing::IsEmpty;
using ::testing::Optional;

constexpr char kBase[] = R"({"model_type": "transformer_lm", "vocab_size": 61,
    "context_length": 96, "d_model": 24, "num_layers": 2, "num_heads": 4, "d_ff": 37})";

ModelConfig Read(const std::string& change) { return Parsed(With(kBase, change)); }

TEST(TransformerLmFieldsTest, BaseKeysAloneMeanTheCoursesModelWithoutPositions) {
  const ModelConfig config = Read("{}");
  EXPECT_EQ(config.model_type, "transformer_lm");
  EXPECT_EQ(config.architecture, "TransformerLM");
  EXPECT_EQ(config.naming, TensorNaming::kCs336);
  EXPECT_EQ(config.vocab_size, 61);
  EXPECT_EQ(config.context_length, 96);
  EXPECT_EQ(config.d_model, 24);
  EXPECT_EQ(config.num_layers, 2);
  EXPECT_EQ(config.num_heads, 4);
  EXPECT_EQ(config.num_kv_heads, 4);
  EXPECT_EQ(config.head_dim, 6);
  EXPECT_EQ(config.d_ff, 37);
  EXPECT_EQ(config.norm_kind, NormKind::kRms);
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_EQ(config.norm_eps_placement, NormEps::kInsideRoot);
  EXPECT_FALSE(config.rope_theta.has_value());
  EXPECT_FALSE(config.rope_scaling.has_value());
  EXPECT_FALSE(config.learned_positions);
  EXPECT_FALSE(config.qk_norm);
  EXPECT_FALSE(config.sliding_window.has_value());
  EXPECT_EQ(config.ffn_kind, FfnKind::kSwiGlu);
  EXPECT_FALSE(config.biases.qkv || config.biases.attention_output || config.biases.ffn);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_THAT(config.eos_token_ids, IsEmpty());
}

TEST(TransformerLmFieldsTest, Norm) {
  const std::pair<const char*, NormKind> kKinds[] = {
      {"rms", NormKind::kRms},         {"RMSNorm", NormKind::kRms},
      {"rms_norm", NormKind::kRms},    {"layer", NormKind::kLayer},
      {"LayerNorm", NormKind::kLayer}, {"layer_norm", NormKind::kLayer}};
  for (const auto& [name, kind] : kKinds) {
    EXPECT_EQ(Read(R"({"norm": ")" + std::string(name) + R"("})").norm_kind, kind) << name;
  }
  EXPECT_EQ(Read(R"({"norm_eps": 0.25})").norm_eps, 0.25);
  EXPECT_EQ(Read(R"({"eps": 0.25})").norm_eps, 0.25);
  EXPECT_EQ(Read(R"({"norm_eps_placement": "outside"})").norm_eps_placement, NormEps::kOutsideRoot);
  EXPECT_EQ(Read(R"({"norm_eps_placement": "inside"})").norm_eps_placement, NormEps::kInsideRoot);
  EXPECT_TRUE(Read(R"({"qk_norm": true})").qk_norm);
}

TEST(TransformerLmFieldsTest, RotaryPositions) {
  const ModelConfig theta = Read(R"({"rope_theta": 500})");
  EXPECT_THAT(theta.rope_theta, Optional(500.0));
  EXPECT_EQ(theta.rope_layout, RopeLayout::kInterleaved);
  const ModelConfig half = Read(R"({"rope_layout": "half"})");
  EXPECT_THAT(half.rope_theta, Optional(10000.0));
  EXPECT_EQ(half.rope_layout, RopeLayout::kHalf);
  const ModelConfig both = Read(R"({"rope_layout": "interleaved", "rope_theta": 7.5})");
  EXPECT_THAT(both.rope_theta, Optional(7.5));
  EXPECT_EQ(both.rope_layout, RopeLayout::kInterleaved);
  EXPECT_FALSE(Read(R"({"rope_theta": null})").rope_theta.has_value());
  EXPECT_FALSE(Read(R"({"rope_layout": "none"})").rope_theta.has_value());
  EXPECT_FALSE(Read(R"({"rope_layout": "none", "rope_theta": 500})").rope_theta.has_value());
}

TEST(TransformerLmFieldsTest, ScaledRotaryPositions) {
  const ModelConfig config =
      Read(R"({"rope_theta": 500, "rope_scaling": {"rope_type": "linear", "factor": 4}})");
  ASSERT_TRUE(config.rope_scaling.has_value());
  EXPECT_EQ(config.rope_scaling->factor, 4.0);
}

TEST(TransformerLmFieldsTest, LearnedPositionsAloneAndBesideRotaryOnes) {
  const ModelConfig alone = Read(R"({"learned_positions": true})");
  EXPECT_TRUE(alone.learned_positions);
  EXPECT_FALSE(alone.rope_theta.has_value());
  const ModelConfig beside = Read(R"({"learned_positions": true, "rope_layout": "half"})");
  EXPECT_TRUE(beside.learned_positions);
  EXPECT_TRUE(beside.rope_theta.has_value());
}

TEST(TransformerLmFieldsTest, PositionsInOneWord) {
  const ModelConfig learned = Read(R"({"positions": "learned", "rope_theta": 500})");
  EXPECT_TRUE(learned.learned_positions);
  EXPECT_FALSE(learned.rope_theta.has_value());
  const ModelConfig rope = Read(R"({"position_embedding": "rope"})");
  EXPECT_FALSE(rope.learned_positions);
  EXPECT_THAT(rope.rope_theta, Optional(10000.0));
  EXPECT_EQ(rope.rope_layout, RopeLayout::kInterleaved);
  const ModelConfig none = Read(R"({"positions": "none", "rope_theta": 500})");
  EXPECT_FALSE(none.learned_positions);
  EXPECT_FALSE(none.rope_theta.has_value());
  EXPECT_EQ(Read(R"({"positions": "rope", "rope_layout": "half"})").rope_layout, RopeLayout::kHalf);
}

TEST(TransformerLmFieldsTest, Heads) {
  EXPECT_EQ(Read(R"({"num_kv_heads": 2})").num_kv_heads, 2);
  EXPECT_EQ(Read(R"({"num_key_value_heads": 1})").num_kv_heads, 1);
  EXPECT_EQ(Read(R"({"head_dim": 7})").head_dim, 7);
  // Heads need not divide the width when they have a width of their own.
  EXPECT_EQ(Read(R"({"num_heads": 5, "head_dim": 8})").q_size(), 40);
}

TEST(TransformerLmFieldsTest, Window) {
  EXPECT_THAT(Read(R"({"sliding_window": 9})").sliding_window, Optional(9));
  EXPECT_FALSE(Read(R"({"sliding_window": 96})").sliding_window.has_value());
  const ModelConfig config =
      Read(R"({"sliding_window": 9, "layer_types": ["full_attention", "sliding_attention"]})");
  EXPECT_EQ(config.WindowOf(0), 0);
  EXPECT_EQ(config.WindowOf(1), 9);
}

std::string Biases(const std::string& change) {
  const LinearBiases biases = Read(change).biases;
  std::string text;
  if (biases.qkv) text += " qkv";
  if (biases.attention_output) text += " output";
  if (biases.ffn) text += " ffn";
  return text;
}

TEST(TransformerLmFieldsTest, BiasesOneByOneAndTogether) {
  EXPECT_EQ(Biases(R"({"qkv_bias": true})"), " qkv");
  EXPECT_EQ(Biases(R"({"attention_output_bias": true})"), " output");
  EXPECT_EQ(Biases(R"({"output_bias": true})"), " output");
  EXPECT_EQ(Biases(R"({"o_bias": true})"), " output");
  EXPECT_EQ(Biases(R"({"ffn_bias": true})"), " ffn");
  EXPECT_EQ(Biases(R"({"mlp_bias": true})"), " ffn");
  EXPECT_EQ(Biases(R"({"attention_bias": true})"), " qkv output");
  EXPECT_EQ(Biases(R"({"bias": true})"), " qkv output ffn");
  EXPECT_EQ(Biases(R"({"biases": {"qkv": true, "ffn": true}})"), " qkv ffn");
  EXPECT_EQ(Biases(R"({"bias": false})"), "");
}

TEST(TransformerLmFieldsTest, TheParticularBiasCountsBeforeTheGeneralOne) {
  EXPECT_EQ(Biases(R"({"bias": true, "ffn_bias": false})"), " qkv output");
  EXPECT_EQ(Biases(R"({"attention_bias": true, "attention_output_bias": false})"), " qkv");
  EXPECT_EQ(Biases(R"({"bias": true, "attention_bias": false})"), " ffn");
}

TEST(TransformerLmFieldsTest, FeedForwardKinds) {
  const std::pair<const char*, FfnKind> kKinds[] = {
      {"swiglu", FfnKind::kSwiGlu},     {"SwiGLU", FfnKind::kSwiGlu},
      {"silu", FfnKind::kSilu},         {"relu", FfnKind::kRelu},
      {"gelu", FfnKind::kGelu},         {"gelu_tanh", FfnKind::kGeluTanh},
      {"gelu_new", FfnKind::kGeluTanh}, {"gelu_pytorch_tanh", FfnKind::kGeluTanh}};
  for (const auto& [name, kind] : kKinds) {
    EXPECT_EQ(Read(R"({"ffn_type": ")" + std::string(name) + R"("})").ffn_kind, kind) << name;
  }
}

TEST(TransformerLmFieldsTest, FeedForwardMatricesNotNamedTakeWhatIsLeft) {
  const auto names = [](const char* change) {
    const FfnNames found = Read(change).ffn_names;
    return fmt::format("{} {} {}", found.gate, found.up, found.down);
  };
  EXPECT_EQ(names("{}"), "1 3 2");
  EXPECT_EQ(names(R"({"ffn_up": "w2", "ffn_down": "w3"})"), "1 2 3");  // w3(silu(w1 x) * w2 x)
  EXPECT_EQ(names(R"({"ffn_down": "w3"})"), "1 2 3");
  EXPECT_EQ(names(R"({"ffn_gate": "w3"})"), "3 1 2");
  EXPECT_EQ(names(R"({"ffn_gate": "w2", "ffn_up": "w1", "ffn_down": "w3"})"), "2 1 3");
  EXPECT_EQ(names(R"({"ffn_type": "relu"})"), "3 1 2");
  EXPECT_EQ(names(R"({"ffn_type": "relu", "ffn_up": "w2"})"), "3 2 1");
  EXPECT_EQ(names(R"({"ffn_type": "silu", "ffn_down": "w3"})"), "2 1 3");
}

TEST(TransformerLmFieldsTest, NamesAndTying) {
  EXPECT_EQ(Read(R"({"tensor_naming": "cs336"})").naming, TensorNaming::kCs336);
  EXPECT_EQ(Read(R"({"tensor_naming": "qwen3_mha"})").naming, TensorNaming::kQwen3Mha);
  EXPECT_EQ(Read(R"({"tensor_naming": "hugging_face"})").naming, TensorNaming::kHuggingFace);
  EXPECT_EQ(Read(R"({"tensor_naming": "gpt2", "ffn_type": "gelu"})").naming, TensorNaming::kGpt2);
  EXPECT_TRUE(Read(R"({"tie_word_embeddings": true})").tie_word_embeddings);
}

TEST(TransformerLmFieldsTest, TokenIds) {
  const ModelConfig config = Read(R"({"bos_token_id": 3, "eos_token_id": [4, 5]})");
  EXPECT_THAT(config.bos_token_id, Optional(3));
  EXPECT_THAT(config.eos_token_ids, ElementsAre(4, 5));
}

TEST(TransformerLmFieldsTest, KeysThatChangeNothingArePassedOver) {
  Read(R"({"architectures": ["Mine"], "torch_dtype": "float32", "dtype": "float32",
           "transformers_version": "5", "dropout": 0.1, "attention_dropout": 0.0,
           "initializer_range": 0.02, "use_cache": true, "pad_token_id": 0, "name": "x",
           "_remark": {"anything": [1]}, "rope_scaling": null})");
}

TEST(RefusedFieldTest, UnknownNamesTheKeyAndItsValue) {
  ExpectRefused(
      kBase,
      {{R"({"qk_nrom": true})", "'qk_nrom' is no key of this configuration, known are "},
       {R"({"window": 3})", "norm_eps, norm_eps_placement"},
       {R"({"windoww": null})", "'windoww'"},
       {R"({"rope_theta": 9, "rope_scaling": {"type": "yarn", "factor": 2, "beta_fats": 3}})",
        "rope_scaling.'beta_fats'"},
       {R"({"biases": {"o": true}})", "biases.'o'"},
       {R"({"norm_eps": 1e-5, "eps": 1e-6})", "norm_eps and eps are two names of one setting"}});
}

TEST(RefusedFieldTest, ValuesNamesTheKeyAndItsValue) {
  ExpectRefused(kBase, {{R"({"norm": "batch"})", "norm is 'batch', it must be one of rms, layer"},
                        {R"({"norm": 1})", "norm is 1, it must be a string"},
                        {R"({"norm_eps": -1e-5})", "norm_eps is -1e-05"},
                        {R"({"norm_eps_placement": "under"})", "norm_eps_placement is 'under'"},
                        {R"({"rope_layout": "spiral"})", "rope_layout is 'spiral'"},
                        {R"({"positions": "alibi"})", "positions is 'alibi'"},
                        {R"({"learned_positions": "yes"})", "learned_positions is 'yes'"},
                        {R"({"sliding_window": 0})", "sliding_window is 0"},
                        {R"({"bias": 1})", "bias is 1"},
                        {R"({"bias": {"qkv": 1}})", "bias.qkv is 1"},
                        {R"({"ffn_type": "moe"})", "ffn_type is 'moe'"},
                        {R"({"ffn_gate": "w4"})", "ffn_gate is 'w4', it must be one of w1, w2, w3"},
                        {R"({"tensor_naming": "jax"})", "tensor_naming is 'jax'"},
                        {R"({"num_kv_heads": 3})", "num_kv_heads, which is 3"},
                        {R"({"head_dim": 7, "rope_theta": 9})", "head_dim is 7"},
                        {R"({"tie_word_embeddings": "no"})", "tie_word_embeddings is 'no'"}});
}

TEST(RefusedFieldTest, ContradictionsNamesTheKeyAndItsValue) {
  ExpectRefused(
      kBase,
      {{R"({"rope_layout": "none", "rope_scaling": {"type": "linear", "factor": 2}})",
        "rope_scaling is given, but there are no rotary positions"},
       {R"({"rope_scaling": {"type": "linear", "factor": 2}})", "rope_scaling is given"},
       {R"({"positions": "learned", "rope_layout": "half"})",
        "positions and rope_layout contradict"},
       {R"({"position_embedding": "rope", "rope_layout": "none"})",
        "position_embedding and rope_layout contradict"},
       {R"({"positions": "learned", "learned_positions": false})",
        "positions and learned_positions contradict"},
       {R"({"positions": "none", "learned_positions": true})",
        "positions and learned_positions contradict"},
       {R"({"ffn_gate": "w1", "ffn_up": "w1"})",
        "ffn_gate, ffn_up and ffn_down must differ, ffn_up is 'w1' again"},
       {R"({"ffn_type": "relu", "ffn_gate": "w1"})",
        "ffn_gate is given, but this ffn_type has no gate"},
       {R"({"tensor_naming": "hugging_face", "ffn_up": "w2"})",
        "ffn_up is given, but only tensor_naming 'cs336'"},
       {R"({"tensor_naming": "gpt2"})", "ffn_type is 'swiglu', tensor_naming 'gpt2' has no name"},
       {R"({"layer_types": ["full_attention", "sliding_attention"]})",
        "layer_types is given, but sliding_window is missing"}});
}

}  // namespace
}  // namespace tlm
