#include "model/weights/name_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace tlm {
namespace {

using ::testing::ElementsAre;

// Dimensions that are all different, so that no two can be taken for each other.
ModelConfig Config() {
  ModelConfig config;
  config.vocab_size = 11;
  config.context_length = 16;
  config.d_model = 10;
  config.num_layers = 2;
  config.num_heads = 6;
  config.num_kv_heads = 2;
  config.head_dim = 4;
  config.d_ff = 7;
  return config;
}

std::vector<std::string> Lines(const ModelConfig& config) {
  std::vector<std::string> lines;
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    lines.push_back(std::to_string(spec.layer) + " " + spec.name + " " + spec.shape.ToString());
  }
  return lines;
}

TEST(NameMapTest, NamesEveryTensorOfHuggingFaceWithNormsAndTiedHead) {
  ModelConfig config = Config();
  config.naming = TensorNaming::kHuggingFace;
  config.num_layers = 1;
  config.qk_norm = true;
  config.tie_word_embeddings = true;
  EXPECT_THAT(Lines(config), ElementsAre("-1 model.embed_tokens.weight [11, 10]",
                                         "0 model.layers.0.input_layernorm.weight [10]",
                                         "0 model.layers.0.self_attn.q_proj.weight [24, 10]",
                                         "0 model.layers.0.self_attn.k_proj.weight [8, 10]",
                                         "0 model.layers.0.self_attn.v_proj.weight [8, 10]",
                                         "0 model.layers.0.self_attn.q_norm.weight [4]",
                                         "0 model.layers.0.self_attn.k_norm.weight [4]",
                                         "0 model.layers.0.self_attn.o_proj.weight [10, 24]",
                                         "0 model.layers.0.post_attention_layernorm.weight [10]",
                                         "0 model.layers.0.mlp.gate_proj.weight [7, 10]",
                                         "0 model.layers.0.mlp.up_proj.weight [7, 10]",
                                         "0 model.layers.0.mlp.down_proj.weight [10, 7]",
                                         "-1 model.norm.weight [10]"));
}

// Every optional tensor there is.
ModelConfig Everything(TensorNaming naming) {
  ModelConfig config = Config();
  config.naming = naming;
  config.num_layers = 1;
  config.norm_kind = NormKind::kLayer;
  config.learned_positions = true;
  config.qk_norm = true;
  config.biases = {.qkv = true, .attention_output = true, .ffn = true};
  return config;
}

TEST(NameMapTest, NamesEveryTensorOfCs336WithAllThereIs) {
  ModelConfig config = Everything(TensorNaming::kCs336);
  config.ffn_names = {.gate = 1, .up = 2, .down = 3};
  EXPECT_THAT(
      Lines(config),
      ElementsAre("-1 token_embeddings.weight [11, 10]", "-1 position_embeddings.weight [16, 10]",
                  "0 layers.0.ln1.weight [10]", "0 layers.0.ln1.bias [10]",
                  "0 layers.0.attn.q_proj.weight [24, 10]", "0 layers.0.attn.q_proj.bias [24]",
                  "0 layers.0.attn.k_proj.weight [8, 10]", "0 layers.0.attn.k_proj.bias [8]",
                  "0 layers.0.attn.v_proj.weight [8, 10]", "0 layers.0.attn.v_proj.bias [8]",
                  "0 layers.0.attn.q_norm.weight [4]", "0 layers.0.attn.k_norm.weight [4]",
                  "0 layers.0.attn.output_proj.weight [10, 24]",
                  "0 layers.0.attn.output_proj.bias [10]", "0 layers.0.ln2.weight [10]",
                  "0 layers.0.ln2.bias [10]", "0 layers.0.ffn.w1.weight [7, 10]",
                  "0 layers.0.ffn.w1.bias [7]", "0 layers.0.ffn.w2.weight [7, 10]",
                  "0 layers.0.ffn.w2.bias [7]", "0 layers.0.ffn.w3.weight [10, 7]",
                  "0 layers.0.ffn.w3.bias [10]", "-1 ln_final.weight [10]", "-1 ln_final.bias [10]",
                  "-1 lm_head.weight [11, 10]"));
}

TEST(NameMapTest, NamesEveryTensorOfQwen3MhaWithAllThereIs) {
  EXPECT_THAT(
      Lines(Everything(TensorNaming::kQwen3Mha)),
      ElementsAre("-1 embeddings.weight [11, 10]", "-1 position_embeddings.weight [16, 10]",
                  "0 layers.0.input_norm.weight [10]", "0 layers.0.input_norm.bias [10]",
                  "0 layers.0.attn.wq.weight [24, 10]", "0 layers.0.attn.wq.bias [24]",
                  "0 layers.0.attn.wk.weight [8, 10]", "0 layers.0.attn.wk.bias [8]",
                  "0 layers.0.attn.wv.weight [8, 10]", "0 layers.0.attn.wv.bias [8]",
                  "0 layers.0.attn.q_norm.weight [4]", "0 layers.0.attn.k_norm.weight [4]",
                  "0 layers.0.attn.wo.weight [10, 24]", "0 layers.0.attn.wo.bias [10]",
                  "0 layers.0.post_attention_norm.weight [10]",
                  "0 layers.0.post_attention_norm.bias [10]",
                  "0 layers.0.ffn.gate_proj.weight [7, 10]", "0 layers.0.ffn.gate_proj.bias [7]",
                  "0 layers.0.ffn.up_proj.weight [7, 10]", "0 layers.0.ffn.up_proj.bias [7]",
                  "0 layers.0.ffn.down_proj.weight [10, 7]", "0 layers.0.ffn.down_proj.bias [10]",
                  "-1 norm.weight [10]", "-1 norm.bias [10]", "-1 output.weight [11, 10]"));
}

TEST(NameMapTest, Gpt2FusesAttentionAndPutsInputsFirst) {
  ModelConfig config = Everything(TensorNaming::kGpt2);
  config.ffn_kind = FfnKind::kGeluTanh;
  config.qk_norm = false;
  EXPECT_THAT(
      Lines(config),
      ElementsAre("-1 wte.weight [11, 10]", "-1 wpe.weight [16, 10]", "0 h.0.ln_1.weight [10]",
                  "0 h.0.ln_1.bias [10]", "0 h.0.attn.c_attn.weight [10, 40]",
                  "0 h.0.attn.c_attn.bias [40]", "0 h.0.attn.c_proj.weight [24, 10]",
                  "0 h.0.attn.c_proj.bias [10]", "0 h.0.ln_2.weight [10]", "0 h.0.ln_2.bias [10]",
                  "0 h.0.mlp.c_fc.weight [10, 7]", "0 h.0.mlp.c_fc.bias [7]",
                  "0 h.0.mlp.c_proj.weight [7, 10]", "0 h.0.mlp.c_proj.bias [10]",
                  "-1 ln_f.weight [10]", "-1 ln_f.bias [10]", "-1 lm_head.weight [11, 10]"));
  EXPECT_TRUE(IsInputsFirst(TensorNaming::kGpt2, TensorRole::kDown));
  EXPECT_FALSE(IsInputsFirst(TensorNaming::kGpt2, TensorRole::kLmHead));
  EXPECT_FALSE(IsInputsFirst(TensorNaming::kGpt2, TensorRole::kPositionEmbedding));
  EXPECT_FALSE(IsInputsFirst(TensorNaming::kCs336, TensorRole::kDown));
}

TEST(NameMapTest, UngatedNetworksHaveNoGate) {
  ModelConfig config = Config();
  config.naming = TensorNaming::kCs336;
  config.num_layers = 1;
  config.ffn_kind = FfnKind::kRelu;
  config.ffn_names = {.gate = 3, .up = 1, .down = 2};
  const std::vector<std::string> lines = Lines(config);
  EXPECT_EQ(lines[lines.size() - 4], "0 layers.0.ffn.w1.weight [7, 10]");
  EXPECT_EQ(lines[lines.size() - 3], "0 layers.0.ffn.w2.weight [10, 7]");
  EXPECT_EQ(lines.size(), 11u);
}

TEST(NameMapTest, NamesAreDistinct) {
  for (const TensorNaming naming : {TensorNaming::kCs336, TensorNaming::kQwen3Mha,
                                    TensorNaming::kHuggingFace, TensorNaming::kGpt2}) {
    ModelConfig config = Everything(naming);
    config.num_layers = 12;
    if (naming == TensorNaming::kGpt2) config.ffn_kind = FfnKind::kGelu;
    std::set<std::string> names;
    for (const TensorSpec& spec : ExpectedTensors(config)) {
      EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
      EXPECT_FALSE(IsKnownBuffer(spec.name, spec.shape.rank())) << spec.name;
      const std::string other = OtherTensorName(naming, spec.name);
      if (!other.empty()) {
        EXPECT_TRUE(names.insert(other).second) << other;
      }
    }
  }
}

TEST(NameMapTest, KnowsTheOtherNamesOfATensor) {
  const auto other = [](TensorNaming naming, const char* name) {
    return OtherTensorName(naming, name);
  };
  EXPECT_EQ(other(TensorNaming::kHuggingFace, "model.norm.weight"), "norm.weight");
  EXPECT_EQ(other(TensorNaming::kHuggingFace, "lm_head.weight"), "");
  EXPECT_EQ(other(TensorNaming::kGpt2, "h.3.ln_1.bias"), "transformer.h.3.ln_1.bias");
  EXPECT_EQ(other(TensorNaming::kGpt2, "lm_head.weight"), "");
  EXPECT_EQ(other(TensorNaming::kCs336, "ln_final.weight"), "");
  EXPECT_EQ(other(TensorNaming::kQwen3Mha, "norm.weight"), "");
}

TEST(NameMapTest, CountsLayers) {
  ModelConfig config = Config();
  EXPECT_EQ(ExpectedTensors(config).size(), 2 * 9 + 3u);
  EXPECT_EQ(TensorName(TensorNaming::kHuggingFace, TensorRole::kGate, 117),
            "model.layers.117.mlp.gate_proj.weight");
}

TEST(NameMapTest, KnowsBuffersFromParameters) {
  EXPECT_TRUE(IsKnownBuffer("model.layers.0.self_attn.rotary_emb.inv_freq", 1));
  EXPECT_TRUE(IsKnownBuffer("rotary_emb.inv_freq", 1));
  EXPECT_TRUE(IsKnownBuffer("layers.3.attn.rope.cos", 2));
  EXPECT_TRUE(IsKnownBuffer("layers.3.attn.positional_encoder._freq_cis_cache", 3));
  EXPECT_TRUE(IsKnownBuffer("h.0.attn.bias", 4));
  EXPECT_TRUE(IsKnownBuffer("h.0.attn.masked_bias", 0));
  EXPECT_TRUE(IsKnownBuffer("transformer.h.0.attn.bias", 4));
  EXPECT_TRUE(IsKnownBuffer("layers.0.attn.causal_mask", 2));

  EXPECT_FALSE(IsKnownBuffer("h.0.attn.bias", 1));
  EXPECT_FALSE(IsKnownBuffer("h.0.attn.c_attn.bias", 1));
  EXPECT_FALSE(IsKnownBuffer("h.0.attn.c_attn.bias", 4));
  EXPECT_FALSE(IsKnownBuffer("layers.0.attn.unmask", 2));
  EXPECT_FALSE(IsKnownBuffer("layers.0.attn.q_proj.bias", 1));
  EXPECT_FALSE(IsKnownBuffer("positional_encoder.weight", 2));
  EXPECT_FALSE(IsKnownBuffer("rope", 1));
  EXPECT_FALSE(IsKnownBuffer("europe.cos", 1));
  EXPECT_FALSE(IsKnownBuffer("", 0));
}

}  // namespace
}  // namespace tlm
