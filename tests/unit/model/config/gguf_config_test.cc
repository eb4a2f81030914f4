#include "model/config/gguf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/support/gguf_writer.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Optional;

absl::StatusOr<ModelConfig> ConfigOf(const GgufWriter& writer,
                                     const std::vector<float>& rope_factors = {}) {
  const GgufInMemory gguf(writer);
  if (!gguf.header.ok()) return gguf.header.status();
  return ReadGgufConfig(gguf.header->metadata, gguf.header->tensors, rope_factors);
}

// The configuration, which must be one to accept.
ModelConfig Read(const GgufWriter& writer, const std::vector<float>& rope_factors = {}) {
  const auto config = ConfigOf(writer, rope_factors);
  EXPECT_THAT(config, IsOk());
  return config.value_or(ModelConfig());
}

TEST(GgufConfigTest, ReadsLlama) {
  GgufWriter writer = SmallGguf("llama");
  writer.Set<float>("llama.rope.freq_base", 5e5f);
  writer.Set<uint32_t>("llama.rope.dimension_count", 8);
  const ModelConfig config = Read(writer);
  EXPECT_EQ(config.model_type, "llama");
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.naming, TensorNaming::kGguf);
  EXPECT_EQ(config.num_layers, 2);
  EXPECT_EQ(config.context_length, 64);
  EXPECT_EQ(config.d_model, 32);
  EXPECT_EQ(config.d_ff, 64);
  EXPECT_EQ(config.num_heads, 4);
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.vocab_size, 50);
  EXPECT_EQ(config.norm_kind, NormKind::kRms);
  EXPECT_EQ(static_cast<float>(config.norm_eps), 1e-5f);
  EXPECT_EQ(config.rope_theta, 5e5);
  EXPECT_EQ(config.rope_layout, RopeLayout::kInterleaved);
  EXPECT_FALSE(config.rope_scaling.has_value());
  EXPECT_FALSE(config.qk_norm);
  EXPECT_FALSE(config.biases.qkv);
  EXPECT_FALSE(config.biases.attention_output);
  EXPECT_FALSE(config.biases.ffn);
  EXPECT_FALSE(config.learned_positions);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_THAT(config.eos_token_ids, IsEmpty());
  EXPECT_EQ(config.bos_token_id, std::nullopt);
}

TEST(GgufConfigTest, ReadsQwen) {
  const ModelConfig qwen2 = Read(SmallGguf("qwen2"));
  EXPECT_EQ(qwen2.architecture, "Qwen2ForCausalLM");
  EXPECT_EQ(qwen2.rope_layout, RopeLayout::kHalf);
  EXPECT_TRUE(qwen2.biases.qkv);
  EXPECT_FALSE(qwen2.biases.attention_output);
  EXPECT_FALSE(qwen2.qk_norm);

  GgufWriter writer = SmallGguf("qwen3");
  writer.Set<uint32_t>("qwen3.attention.key_length", 16);
  writer.Set<uint32_t>("qwen3.attention.value_length", 16);
  writer.Fill("output.weight", DType::kF32, {50, 32});
  const ModelConfig qwen3 = Read(writer);
  EXPECT_EQ(qwen3.architecture, "Qwen3ForCausalLM");
  EXPECT_EQ(qwen3.rope_layout, RopeLayout::kHalf);
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_FALSE(qwen3.biases.qkv);
  EXPECT_EQ(qwen3.head_dim, 16);
  EXPECT_FALSE(qwen3.tie_word_embeddings);
}

TEST(GgufConfigTest, ReadsGpt2) {
  const ModelConfig config = Read(SmallGguf("gpt2"));
  EXPECT_EQ(config.naming, TensorNaming::kGgufGpt2);
  EXPECT_EQ(config.norm_kind, NormKind::kLayer);
  EXPECT_EQ(config.ffn_kind, FfnKind::kGeluTanh);
  EXPECT_TRUE(config.learned_positions);
  EXPECT_EQ(config.rope_theta, std::nullopt);
  EXPECT_EQ(config.num_kv_heads, 4);
  EXPECT_TRUE(config.biases.qkv && config.biases.attention_output && config.biases.ffn);
  EXPECT_TRUE(config.tie_word_embeddings);
}

TEST(GgufConfigTest, BiasesAreThoseOfTheFirstLayer) {
  GgufWriter writer = SmallGguf("llama");
  writer.Fill("blk.0.attn_q.bias", DType::kF32, {32});
  writer.Fill("blk.0.attn_output.bias", DType::kF32, {32});
  writer.Fill("blk.0.ffn_down.bias", DType::kF32, {32});
  const ModelConfig config = Read(writer);
  EXPECT_TRUE(config.biases.qkv && config.biases.attention_output && config.biases.ffn);
}

TEST(GgufConfigTest, OtherArchitecturesAreNamed) {
  GgufWriter writer = SmallGguf("llama");
  writer.SetText("general.architecture", "gemma3");
  EXPECT_THAT(ConfigOf(writer), IsUnimplemented("'gemma3'", "llama, qwen2, qwen3, gpt2"));
  writer.Remove("general.architecture");
  EXPECT_THAT(ConfigOf(writer), IsInvalidArgument("'general.architecture' is missing"));
}

TEST(GgufConfigTest, RequiredKeysAreNamed) {
  for (const char* const key :
       {"llama.block_count", "llama.context_length", "llama.embedding_length",
        "llama.feed_forward_length", "llama.attention.head_count",
        "llama.attention.layer_norm_rms_epsilon"}) {
    GgufWriter writer = SmallGguf("llama");
    writer.Remove(key);
    EXPECT_THAT(ConfigOf(writer), IsInvalidArgument(key, "is missing"));
    writer.SetText(key, "2");
    EXPECT_THAT(ConfigOf(writer), IsInvalidArgument(key, "it must be"));
  }
  GgufWriter gpt2 = SmallGguf("gpt2");
  gpt2.Remove("gpt2.attention.layer_norm_epsilon");
  EXPECT_THAT(ConfigOf(gpt2), IsInvalidArgument("'gpt2.attention.layer_norm_epsilon'"));
  GgufWriter headless = SmallGguf("llama");
  headless.RemoveTensor("token_embd.weight");
  EXPECT_THAT(ConfigOf(headless), IsInvalidArgument("'token_embd.weight' is missing"));
  headless.Fill("token_embd.weight", DType::kF32, {50});
  EXPECT_THAT(ConfigOf(headless), IsInvalidArgument("has 1 dimensions, it must have 2"));
}

TEST(GgufConfigTest, DimensionsHaveLimits) {
  for (const char* const key :
       {"llama.block_count", "llama.context_length", "llama.embedding_length",
        "llama.feed_forward_length", "llama.attention.head_count", "llama.attention.head_count_kv",
        "llama.attention.key_length", "llama.attention.value_length",
        "llama.rope.dimension_count"}) {
    for (const uint32_t value : {0u, 0xffffffffu}) {
      GgufWriter writer = SmallGguf("llama");
      writer.Set(key, value);
      EXPECT_THAT(ConfigOf(writer), IsInvalidArgument(key, std::to_string(value), "between 1 and"));
    }
  }
}

TEST(GgufConfigTest, NumbersOutsideTheirRangeNameTheirKey) {
  const auto refused = [](const char* key, float value, const char* range) {
    GgufWriter writer = SmallGguf("llama");
    writer.SetText("llama.rope.scaling.type", "yarn");
    writer.Set<float>("llama.rope.scaling.factor", 4);
    writer.Set(key, value);
    EXPECT_THAT(ConfigOf(writer), IsInvalidArgument(std::string("'") + key, range));
  };
  refused("llama.attention.layer_norm_rms_epsilon", 2, "is 2, it must be between 1e-30 and 1");
  refused("llama.attention.layer_norm_rms_epsilon", NAN, "is nan (float32)");
  refused("llama.rope.freq_base", 0, "is 0, it must be between");
  refused("llama.rope.freq_base", 1, "above 1");
  refused("llama.rope.scaling.factor", 0.5f, "between 1 and");
  refused("llama.rope.scaling.factor", -1, "between 1 and");
  refused("llama.rope.scaling.yarn_beta_fast", 0.5f, "above rope_scaling.beta_slow");
  refused("llama.rope.scaling.yarn_beta_slow", -3, "between");
  refused("llama.rope.scaling.yarn_attn_factor", 0, "between");

  GgufWriter heads = SmallGguf("llama");
  heads.Set<uint32_t>("llama.attention.head_count_kv", 3);
  EXPECT_THAT(ConfigOf(heads), IsInvalidArgument("'llama.attention.head_count'"));
  GgufWriter odd = SmallGguf("llama");
  odd.Set<uint32_t>("llama.attention.key_length", 7);
  EXPECT_THAT(ConfigOf(odd), IsInvalidArgument("'llama.attention.key_length'"));
  GgufWriter gpt2 = SmallGguf("gpt2");
  gpt2.Set<float>("gpt2.attention.layer_norm_epsilon", 2);
  EXPECT_THAT(ConfigOf(gpt2), IsInvalidArgument("'gpt2.attention.layer_norm_epsilon'"));
  GgufWriter width = SmallGguf("llama");
  width.Set<uint32_t>("llama.embedding_length", 33);
  EXPECT_THAT(ConfigOf(width),
              IsInvalidArgument("llama.embedding_length", "llama.attention.head_count"));
}

TEST(GgufConfigTest, LayersMustBeAlike) {
  GgufWriter writer = SmallGguf("llama");
  writer.SetArray<int32_t>("llama.attention.head_count_kv", {2, 2});
  writer.SetArray<uint32_t>("llama.feed_forward_length", {64, 64});
  const ModelConfig config = Read(writer);
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.d_ff, 64);
  writer.SetArray<int32_t>("llama.attention.head_count_kv", {2, 4});
  EXPECT_THAT(ConfigOf(writer), IsUnimplemented("head_count_kv' differs between layers (2 and 4)"));
  writer.SetArray<int32_t>("llama.attention.head_count_kv", {});
  EXPECT_THAT(ConfigOf(writer), IsInvalidArgument("is an empty array"));
  writer.SetArray<int32_t>("llama.attention.head_count_kv", {0, 0});
  EXPECT_THAT(ConfigOf(writer), IsInvalidArgument("is 0, it must be between"));
}

TEST(GgufConfigTest, ReadsLinearScaling) {
  GgufWriter writer = SmallGguf("llama");
  writer.SetText("llama.rope.scaling.type", "linear");
  writer.Set<float>("llama.rope.scaling.factor", 2.5f);
  const ModelConfig config = Read(writer);
  EXPECT_THAT(config.rope_scaling,
              Optional(RopeScaling{.kind = RopeScaling::Kind::kLinear, .factor = 2.5}));
  writer.Remove("llama.rope.scaling.type");  // the default
  EXPECT_THAT(*Read(writer).rope_scaling, RopeScaling{.factor = 2.5});
  writer.SetText("llama.rope.scaling.type", "none");
  EXPECT_EQ(Read(writer).rope_scaling, std::nullopt);

  GgufWriter old = SmallGguf("llama");
  old.Set<float>("llama.rope.scale_linear", 4);
  EXPECT_THAT(Read(old).rope_scaling, Optional(RopeScaling{.factor = 4}));
  old.Set<float>("llama.rope.scale_linear", 0);
  EXPECT_EQ(Read(old).rope_scaling, std::nullopt);
  old.Set<float>("llama.rope.scaling.attn_factor", 2);
  EXPECT_THAT(ConfigOf(old), IsUnimplemented("rope.scaling.attn_factor' is 2"));

  writer.SetText("llama.rope.scaling.type", "longrope");
  EXPECT_THAT(ConfigOf(writer),
              IsUnimplemented("'llama.rope.scaling.type'", "none, linear and yarn"));
}

TEST(GgufConfigTest, ReadsYarn) {
  GgufWriter writer = SmallGguf("qwen2");
  writer.SetText("qwen2.rope.scaling.type", "yarn");
  writer.Set<float>("qwen2.rope.scaling.factor", 4);
  const ModelConfig defaults = Read(writer);
  ASSERT_TRUE(defaults.rope_scaling.has_value());
  EXPECT_EQ(*defaults.rope_scaling, (RopeScaling{.kind = RopeScaling::Kind::kYarn,
                                                 .factor = 4,
                                                 .original_context_length = 64,
                                                 .attention_factor = 0.1 * std::log(4.0) + 1}));

  writer.Set<uint32_t>("qwen2.rope.scaling.original_context_length", 16);
  writer.Set<float>("qwen2.rope.scaling.yarn_beta_fast", 16);
  writer.Set<float>("qwen2.rope.scaling.yarn_beta_slow", 2);
  writer.Set<float>("qwen2.rope.scaling.yarn_attn_factor", 1.5f);
  writer.Set<float>("qwen2.rope.scaling.attn_factor", 2);
  writer.Set<float>("qwen2.rope.scaling.yarn_ext_factor", 1);
  const ModelConfig given = Read(writer);
  EXPECT_EQ(*given.rope_scaling, (RopeScaling{.kind = RopeScaling::Kind::kYarn,
                                              .factor = 4,
                                              .original_context_length = 16,
                                              .beta_fast = 16,
                                              .beta_slow = 2,
                                              .attention_factor = 3}));

  writer.Set<float>("qwen2.rope.scaling.yarn_ext_factor", -1);
  EXPECT_THAT(ConfigOf(writer), IsOk());
  writer.Set<float>("qwen2.rope.scaling.yarn_ext_factor", 0);
  EXPECT_THAT(ConfigOf(writer), IsUnimplemented("yarn_ext_factor' is 0"));
  writer.Remove("qwen2.rope.scaling.yarn_ext_factor");
  writer.Set<float>("qwen2.rope.scaling.yarn_log_multiplier", 0.1f);
  EXPECT_THAT(ConfigOf(writer), IsUnimplemented("yarn_log_multiplier' is 0.1"));
}

TEST(GgufConfigTest, TakesFactorsOfFrequencies) {
  const ModelConfig config = Read(SmallGguf("llama"), {1, 2, 4, 8});
  ASSERT_TRUE(config.rope_scaling.has_value());
  EXPECT_EQ(config.rope_scaling->kind, RopeScaling::Kind::kFactors);
  EXPECT_THAT(config.rope_scaling->factors, ElementsAre(1, 2, 4, 8));

  EXPECT_THAT(ConfigOf(SmallGguf("llama"), {1, 2, 4}),
              IsInvalidArgument("'rope_freqs.weight'", "has 3 elements"));
  for (const float factor : {0.0f, -1.0f, NAN, INFINITY}) {
    EXPECT_THAT(ConfigOf(SmallGguf("llama"), {1, 2, 4, factor}),
                IsInvalidArgument("'rope_freqs.weight'"));
  }
  GgufWriter both = SmallGguf("llama");
  both.Set<float>("llama.rope.scaling.factor", 2);
  EXPECT_THAT(ConfigOf(both, {1, 2, 4, 8}), IsUnimplemented("'rope_freqs.weight'"));
}

TEST(GgufConfigTest, TakesAWindow) {
  GgufWriter writer = SmallGguf("llama");
  writer.Set<uint32_t>("llama.attention.sliding_window", 16);
  const ModelConfig config = Read(writer);
  EXPECT_THAT(config.sliding_window, Optional(16));
  for (const uint32_t none : {0u, 64u, 4096u}) {
    writer.Set("llama.attention.sliding_window", none);
    EXPECT_EQ(Read(writer).sliding_window, std::nullopt) << none;
  }
  writer.Set<int32_t>("llama.attention.sliding_window", -4);
  EXPECT_THAT(ConfigOf(writer), IsInvalidArgument("llama.attention.sliding_window", "-4"));
  writer.Set<uint32_t>("llama.attention.sliding_window", 16);
  writer.SetArray<bool>("llama.attention.sliding_window_pattern", {true, false});
  EXPECT_THAT(ConfigOf(writer), IsUnimplemented("sliding_window_pattern"));
}

TEST(GgufConfigTest, KeysThatChangeResultsAreRefused) {
  for (const char* const key :
       {"llama.expert_count", "llama.attention.scale", "llama.attention.clamp_kqv",
        "llama.attention.max_alibi_bias", "llama.attn_logit_softcapping",
        "llama.final_logit_softcapping", "llama.logit_scale", "llama.residual_scale",
        "llama.embedding_scale"}) {
    GgufWriter writer = SmallGguf("llama");
    writer.Set<float>(key, 8);
    EXPECT_THAT(ConfigOf(writer), IsUnimplemented(key, "is 8"));
    writer.Set<float>(key, 0);
    EXPECT_THAT(ConfigOf(writer), IsOk());
  }
  GgufWriter writer = SmallGguf("llama");
  writer.Set<bool>("llama.attention.causal", false);
  EXPECT_THAT(ConfigOf(writer), IsUnimplemented("llama.attention.causal"));
  GgufWriter values = SmallGguf("llama");
  values.Set<uint32_t>("llama.attention.value_length", 4);
  EXPECT_THAT(ConfigOf(values), IsUnimplemented("value_length' is 4, only 8"));
  GgufWriter partial = SmallGguf("qwen2");
  partial.Set<uint32_t>("qwen2.rope.dimension_count", 4);
  EXPECT_THAT(ConfigOf(partial), IsUnimplemented("qwen2.rope.dimension_count"));
}

TEST(GgufConfigTest, EndsAreThoseThatAreNamedAndThoseThatAreKnown) {
  GgufWriter writer = SmallGguf("qwen3");
  writer.SetText("tokenizer.ggml.model", "gpt2");
  writer.Set<uint32_t>("tokenizer.ggml.bos_token_id", 3);
  writer.Set<uint32_t>("tokenizer.ggml.eos_token_id", 4);
  writer.Set<uint32_t>("tokenizer.ggml.eot_token_id", 4);
  writer.Set<int32_t>("tokenizer.ggml.eom_token_id", 7);
  writer.SetTexts("tokenizer.ggml.tokens", {"<|im_end|>", "<|im_end|> ", "</s>", "a"});
  writer.SetArray<int32_t>("tokenizer.ggml.token_type", {3, 3, 1, 1});  // </s> is a normal token
  const ModelConfig config = Read(writer);
  EXPECT_THAT(config.eos_token_ids, ElementsAre(4, 7, 0));
  EXPECT_THAT(config.bos_token_id, Optional(3));

  // Outside the vocabulary they count as none.
  writer.Set<uint32_t>("tokenizer.ggml.bos_token_id", 50);
  writer.Set<uint32_t>("tokenizer.ggml.eos_token_id", 0xffffffff);
  writer.Remove("tokenizer.ggml.eot_token_id");
  const ModelConfig outside = Read(writer);
  EXPECT_THAT(outside.eos_token_ids, ElementsAre(7, 0));
  EXPECT_EQ(outside.bos_token_id, std::nullopt);
}

TEST(GgufConfigTest, SentencePieceHasDefaultEnds) {
  GgufWriter writer = SmallGguf("llama");
  writer.SetText("tokenizer.ggml.model", "llama");
  const ModelConfig config = Read(writer);
  EXPECT_THAT(config.eos_token_ids, ElementsAre(2));
  EXPECT_THAT(config.bos_token_id, Optional(1));
}

}  // namespace
}  // namespace tlm
