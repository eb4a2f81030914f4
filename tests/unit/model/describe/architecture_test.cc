#include "model/describe/architecture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/base/errors.h"
#include "model/config/config_reader.h"
#include "model/config/presets.h"

namespace tlm {
namespace {

v1::ArchitectureInfo Describe(const ModelConfig& config) {
  v1::ArchitectureInfo architecture;
  FillArchitecture(config, architecture);
  return architecture;
}

ModelConfig Preset(const char* name) {
  return ParseModelConfig(PresetConfig(name).value_or("")).value_or(ModelConfig());
}

TEST(FillArchitectureTest, Gpt2) {
  const v1::ArchitectureInfo info = Describe(Preset("gpt2-xl"));
  EXPECT_EQ(info.num_layers(), 48u);
  EXPECT_EQ(info.d_model(), 1600u);
  EXPECT_EQ(info.num_heads(), 25u);
  EXPECT_EQ(info.num_kv_heads(), 25u);
  EXPECT_EQ(info.head_dim(), 64u);
  EXPECT_EQ(info.d_ff(), 6400u);
  EXPECT_EQ(info.vocab_size(), 50257u);
  EXPECT_EQ(info.context_length(), 1024u);
  EXPECT_EQ(info.rope().layout(), v1::ROPE_LAYOUT_NONE);
  EXPECT_FALSE(info.rope().has_theta());
  EXPECT_TRUE(info.learned_positions());
  EXPECT_EQ(info.norm().kind(), v1::NORM_KIND_LAYER);
  EXPECT_EQ(info.norm().eps(), 1e-5);
  EXPECT_EQ(info.norm().eps_placement(), v1::NORM_EPS_PLACEMENT_INSIDE_ROOT);
  EXPECT_EQ(info.activation(), v1::ACTIVATION_GELU_TANH);
  EXPECT_TRUE(info.biases().qkv() && info.biases().attention_output() && info.biases().ffn());
  EXPECT_TRUE(info.tie_word_embeddings());
  EXPECT_FALSE(info.has_sliding_window());
}

TEST(FillArchitectureTest, Llama31) {
  const v1::ArchitectureInfo info = Describe(Preset("llama-3.1-8b"));
  EXPECT_EQ(info.num_kv_heads(), 8u);
  EXPECT_EQ(info.rope().theta(), 500000.0);
  EXPECT_EQ(info.rope().layout(), v1::ROPE_LAYOUT_HALF);
  EXPECT_EQ(info.rope().scaling().kind(), "llama3");
  EXPECT_EQ(info.rope().scaling().factor(), 8.0);
  EXPECT_EQ(info.rope().scaling().low_freq_factor(), 1.0);
  EXPECT_EQ(info.rope().scaling().high_freq_factor(), 4.0);
  EXPECT_EQ(info.rope().scaling().original_context_length(), 8192u);
  EXPECT_EQ(info.rope().scaling().beta_fast(), 0.0);
  EXPECT_EQ(info.norm().kind(), v1::NORM_KIND_RMS);
  EXPECT_EQ(info.activation(), v1::ACTIVATION_SWIGLU);
  EXPECT_FALSE(info.biases().qkv());
}

TEST(FillArchitectureTest, UnusualFields) {
  ModelConfig config = Preset("cs336-small");
  config.norm_eps_placement = NormEps::kOutsideRoot;
  config.ffn_kind = FfnKind::kSilu;
  config.qk_norm = true;
  config.biases.ffn = true;
  config.rope_scaling = RopeScaling{.kind = RopeScaling::Kind::kYarn,
                                    .factor = 4,
                                    .original_context_length = 512,
                                    .beta_fast = 30,
                                    .beta_slow = 2,
                                    .attention_factor = 1.5,
                                    .truncate = false};
  const v1::ArchitectureInfo info = Describe(config);
  EXPECT_EQ(info.rope().layout(), v1::ROPE_LAYOUT_INTERLEAVED);
  EXPECT_EQ(info.rope().scaling().kind(), "yarn");
  EXPECT_EQ(info.rope().scaling().beta_fast(), 30.0);
  EXPECT_EQ(info.rope().scaling().beta_slow(), 2.0);
  EXPECT_EQ(info.rope().scaling().attention_factor(), 1.5);
  EXPECT_FALSE(info.rope().scaling().truncate());
  EXPECT_EQ(info.rope().scaling().low_freq_factor(), 0.0);
  EXPECT_EQ(info.norm().eps_placement(), v1::NORM_EPS_PLACEMENT_OUTSIDE_ROOT);
  EXPECT_EQ(info.activation(), v1::ACTIVATION_SILU);
  EXPECT_TRUE(info.qk_norm());
  EXPECT_TRUE(info.biases().ffn());
}

TEST(FillArchitectureTest, CountsTheLayersOfASlidingWindow) {
  ModelConfig config = Preset("mistral-7b");
  EXPECT_EQ(Describe(config).sliding_window(), 4096u);
  EXPECT_EQ(Describe(config).sliding_window_layers(), 32u);
  config.full_attention.assign(32, true);
  config.full_attention[3] = false;
  EXPECT_EQ(Describe(config).sliding_window_layers(), 1u);
  config.full_attention[3] = true;
  EXPECT_FALSE(Describe(config).has_sliding_window());
}

TEST(FillParametersTest, StoredIsTheTotalUnlessGiven) {
  v1::ParameterCounts counts;
  FillParameters(Preset("qwen3-0.6b"), 0, counts);
  EXPECT_EQ(counts.total(), 596049920u);
  EXPECT_EQ(counts.stored(), 596049920u);
  FillParameters(Preset("qwen3-0.6b"), 751632384, counts);
  EXPECT_EQ(counts.total(), 596049920u);
  EXPECT_EQ(counts.stored(), 751632384u);
}

TEST(FillParametersTest, PartsSumToTheTotal) {
  for (const char* const preset : {"gpt2", "qwen2.5-7b", "mistral-7b", "cs336-2.7b"}) {
    v1::ParameterCounts counts;
    FillParameters(Preset(preset), 0, counts);
    EXPECT_EQ(counts.total(), counts.embedding() + counts.position_embedding() + counts.lm_head() +
                                  counts.attention().q() + counts.attention().k() +
                                  counts.attention().v() + counts.attention().o() +
                                  counts.ffn().gate() + counts.ffn().up() + counts.ffn().down() +
                                  counts.norms() + counts.biases())
        << preset;
  }
}

TEST(AddTensorTest, TakesNameTypeAndShape) {
  v1::ParameterCounts counts;
  AddTensor("wte.weight", DType::kBF16, std::nullopt, {50257, 768}, counts);
  ASSERT_EQ(counts.tensors_size(), 1);
  EXPECT_EQ(counts.tensors(0).name(), "wte.weight");
  EXPECT_EQ(counts.tensors(0).dtype(), v1::DATA_TYPE_BFLOAT16);
  EXPECT_EQ(counts.tensors(0).shape_size(), 2);
  EXPECT_EQ(counts.tensors(0).elements(), 50257u * 768);
}

ModelConfig Gpt2Xl() {
  return ParseModelConfig(PresetConfig("gpt2-xl").value_or("")).value_or(ModelConfig());
}

v1::FlopsQuery Query(uint32_t batch, uint32_t prompt_tokens, uint32_t new_tokens) {
  v1::FlopsQuery query;
  query.set_batch(batch);
  query.set_prompt_tokens(prompt_tokens);
  query.set_new_tokens(new_tokens);
  return query;
}

struct Case {
  uint32_t prompt_tokens, new_tokens;
  uint64_t resolved_prompt;
};

TEST(ResolveFlopsQueryTest, FillsInTheContext) {
  for (const Case& c : {Case{0, 0, 1024}, Case{0, 24, 1000}, Case{0, 1023, 1}, Case{0, 1024, 0},
                        Case{0, 5000, 0}, Case{7, 0, 7}, Case{16384, 0, 16384},
                        Case{1000, 1000, 1000}, Case{1u << 24, 0, 1u << 24}}) {
    const auto resolved = ResolveFlopsQuery(Query(0, c.prompt_tokens, c.new_tokens), Gpt2Xl());
    ASSERT_TRUE(resolved.ok()) << resolved.status();
    EXPECT_EQ(resolved->batch, 1u);
    EXPECT_EQ(resolved->prompt_tokens, c.resolved_prompt);
    EXPECT_EQ(resolved->new_tokens, c.new_tokens);
  }
}

TEST(ResolveFlopsQueryTest, NamesTheFieldThatIsTooLong) {
  for (const auto& [query, field] : {std::pair(Query(1, (1u << 24) + 1, 0), "flops.prompt_tokens"),
                                     std::pair(Query(1, 0, (1u << 24) + 1), "flops.new_tokens"),
                                     std::pair(Query(1, 1u << 24, 1), "flops.new_tokens"),
                                     std::pair(Query(1, ~0u, ~0u), "flops.prompt_tokens")}) {
    const absl::Status status = ResolveFlopsQuery(query, Gpt2Xl()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(FieldOf(status), field);
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("16777216"));
  }
}

TEST(FillFlopsTest, AnswersTheCourse) {
  v1::FlopsInfo flops;
  FillFlops(Gpt2Xl(), *ResolveFlopsQuery(Query(0, 0, 0), Gpt2Xl()), flops);
  EXPECT_EQ(flops.query().batch(), 1u);
  EXPECT_EQ(flops.query().prompt_tokens(), 1024u);
  EXPECT_EQ(flops.total(), 3506703564800u);
  const v1::FlopsBreakdown& parts = flops.components();
  EXPECT_EQ(parts.lm_head().flops(), 164682137600u);
  EXPECT_NEAR(parts.lm_head().share(), 0.047, 5e-4);
  EXPECT_NEAR(parts.ffn_up().share() + parts.ffn_down().share(), 0.574, 5e-4);
  EXPECT_NEAR(parts.qkv().share() + parts.output_projection().share(), 0.287, 5e-4);
  EXPECT_NEAR(parts.scores().share() + parts.weighted_sum().share(), 0.092, 5e-4);
  EXPECT_EQ(parts.ffn_gate().flops(), 0u);
  EXPECT_EQ(flops.flops_per_token_linear() * 1024 +
                flops.attention_flops_per_token_per_context() * 1024 * 1024,
            flops.total());
  EXPECT_THAT(flops.convention(), testing::HasSubstr("sliding window"));
}

}  // namespace
}  // namespace tlm
