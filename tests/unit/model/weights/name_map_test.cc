#include "model/weights/name_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

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

TEST(NameMapTest, NamesEveryTensorOfCs336) {
  ModelConfig config = Config();
  config.naming = TensorNaming::kCs336;
  config.num_layers = 1;
  EXPECT_THAT(
      Lines(config),
      ElementsAre("-1 token_embeddings.weight [11, 10]", "0 layers.0.ln1.weight [10]",
                  "0 layers.0.attn.q_proj.weight [24, 10]", "0 layers.0.attn.k_proj.weight [8, 10]",
                  "0 layers.0.attn.v_proj.weight [8, 10]",
                  "0 layers.0.attn.output_proj.weight [10, 24]", "0 layers.0.ln2.weight [10]",
                  "0 layers.0.ffn.w1.weight [7, 10]", "0 layers.0.ffn.w3.weight [7, 10]",
                  "0 layers.0.ffn.w2.weight [10, 7]", "-1 ln_final.weight [10]",
                  "-1 lm_head.weight [11, 10]"));
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

TEST(NameMapTest, CountsLayers) {
  ModelConfig config = Config();
  EXPECT_EQ(ExpectedTensors(config).size(), 2 * 9 + 3u);
  EXPECT_EQ(TensorName(TensorNaming::kHuggingFace, TensorRole::kGate, 117),
            "model.layers.117.mlp.gate_proj.weight");
}

// Parameters of published models, exact: only the right tensors in the right shapes give them.
int64_t Parameters(const ModelConfig& config) {
  int64_t sum = 0;
  for (const TensorSpec& spec : ExpectedTensors(config)) sum += spec.shape.elements();
  return sum;
}

TEST(NameMapTest, ShapesSumToPublishedParameterCounts) {
  ModelConfig qwen;
  qwen.vocab_size = 151936;
  qwen.d_model = 1024;
  qwen.num_layers = 28;
  qwen.num_heads = 16;
  qwen.num_kv_heads = 8;
  qwen.head_dim = 128;
  qwen.d_ff = 3072;
  qwen.qk_norm = true;
  qwen.tie_word_embeddings = true;
  EXPECT_EQ(Parameters(qwen), 596'049'920);

  ModelConfig llama;
  llama.vocab_size = 128256;
  llama.d_model = 4096;
  llama.num_layers = 32;
  llama.num_heads = 32;
  llama.num_kv_heads = 8;
  llama.head_dim = 128;
  llama.d_ff = 14336;
  EXPECT_EQ(Parameters(llama), 8'030'261'248);
}

TEST(NameMapTest, KnowsBuffersFromParameters) {
  EXPECT_TRUE(IsKnownBuffer("model.layers.0.self_attn.rotary_emb.inv_freq", 1));
  EXPECT_TRUE(IsKnownBuffer("rotary_emb.inv_freq", 1));
  EXPECT_TRUE(IsKnownBuffer("layers.3.attn.rope.cos", 2));
  EXPECT_TRUE(IsKnownBuffer("layers.3.attn.positional_encoder._freq_cis_cache", 3));
  EXPECT_TRUE(IsKnownBuffer("h.0.attn.bias", 4));
  EXPECT_TRUE(IsKnownBuffer("h.0.attn.masked_bias", 0));

  EXPECT_FALSE(IsKnownBuffer("h.0.attn.bias", 1));
  EXPECT_FALSE(IsKnownBuffer("layers.0.attn.q_proj.bias", 1));
  EXPECT_FALSE(IsKnownBuffer("positional_encoder.weight", 2));
  EXPECT_FALSE(IsKnownBuffer("rope", 1));
  EXPECT_FALSE(IsKnownBuffer("europe.cos", 1));
  EXPECT_FALSE(IsKnownBuffer("", 0));
}

}  // namespace
}  // namespace tlm
