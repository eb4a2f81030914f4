#include "model/accounting/parameters.h"

#include <gtest/gtest.h>

#include <cctype>
#include <random>
#include <string>

#include "model/config/config_reader.h"
#include "model/config/presets.h"
#include "model/weights/name_map.h"

namespace tlm {
namespace {

ModelConfig Preset(const std::string& name) {
  const absl::StatusOr<ModelConfig> config = ParseModelConfig(PresetConfig(name).value_or(""));
  EXPECT_TRUE(config.ok()) << name << ": " << config.status();
  return config.value_or(ModelConfig());
}

struct Published {
  const char* preset;
  uint64_t total;
};

class PublishedTotalsTest : public testing::TestWithParam<Published> {};

// The totals are those of the published checkpoints.
TEST_P(PublishedTotalsTest, AreReproduced) {
  EXPECT_EQ(CountParameters(Preset(GetParam().preset)).total, GetParam().total);
}

INSTANTIATE_TEST_SUITE_P(
    CountParametersTest, PublishedTotalsTest,
    testing::Values(Published{"gpt2", 124439808}, Published{"gpt2-medium", 354823168},
                    Published{"gpt2-large", 774030080}, Published{"gpt2-xl", 1557611200},
                    Published{"qwen3-0.6b", 596049920}, Published{"qwen3-1.7b", 1720574976},
                    Published{"qwen3-4b", 4022468096}, Published{"qwen3-8b", 8190735360},
                    Published{"qwen3-14b", 14768307200}, Published{"qwen3-32b", 32762123264},
                    Published{"qwen2.5-0.5b", 494032768}, Published{"qwen2.5-7b", 7615616512},
                    Published{"llama-3-8b", 8030261248}, Published{"llama-3.1-8b", 8030261248},
                    Published{"llama-3.2-1b", 1235814400}, Published{"llama-3.2-3b", 3212749824},
                    Published{"llama-2-7b", 6738415616}, Published{"tinyllama-1.1b", 1100048384},
                    Published{"mistral-7b", 7241732096}),
    [](const testing::TestParamInfo<Published>& info) {
      std::string name = info.param.preset;
      for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
      return name;
    });

// 2 * vocab * d + layers * (4 d^2 + 3 d * d_ff + 2 d) + d, worked out by hand.
TEST(CountParametersTest, CourseSizes) {
  EXPECT_EQ(CountParameters(Preset("cs336-small")).total, 128625408u);
  EXPECT_EQ(CountParameters(Preset("cs336-2.7b")).total, 3406809600u);
}

TEST(CountParametersTest, ComponentsOfGpt2) {
  const ParameterCounts counts = CountParameters(Preset("gpt2"));
  EXPECT_EQ(counts.embedding, 50257u * 768);
  EXPECT_EQ(counts.position_embedding, 1024u * 768);
  EXPECT_EQ(counts.lm_head, 0u);
  EXPECT_EQ(counts.attention_q, 12u * 768 * 768);
  EXPECT_EQ(counts.ffn_gate, 0u);
  EXPECT_EQ(counts.ffn_up, 12u * 768 * 3072);
  EXPECT_EQ(counts.norms, 25u * 768);
  EXPECT_EQ(counts.biases, 25u * 768 + 12u * (3 * 768 + 768 + 3072 + 768));
  EXPECT_EQ(counts.non_embedding, counts.total - 51281u * 768);
}

// A tied head that a checkpoint stores all the same.
TEST(CountParametersTest, TiedMatrixCountsOnce) {
  const ParameterCounts counts = CountParameters(Preset("qwen3-0.6b"));
  EXPECT_EQ(counts.lm_head, 0u);
  EXPECT_EQ(counts.total + counts.embedding, 751632384u);
}

ModelConfig RandomConfig(std::mt19937_64& random) {
  const auto pick = [&random](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  const auto flip = [&pick] { return pick(0, 1) == 1; };
  ModelConfig config;
  config.naming = static_cast<TensorNaming>(pick(0, 3));
  config.vocab_size = pick(1, 1000);
  config.context_length = pick(1, 1000);
  config.d_model = pick(1, 100);
  config.num_layers = pick(1, 6);
  config.num_kv_heads = pick(1, 4);
  config.num_heads = config.num_kv_heads * pick(1, 4);
  config.head_dim = 2 * pick(1, 16);
  config.d_ff = pick(1, 300);
  config.norm_kind = flip() ? NormKind::kLayer : NormKind::kRms;
  if (flip()) config.rope_theta = 10000.0;
  config.learned_positions = flip();
  config.qk_norm = flip();
  config.ffn_kind = static_cast<FfnKind>(pick(0, 4));
  config.biases = {.qkv = flip(), .attention_output = flip(), .ffn = flip()};
  config.tie_word_embeddings = flip();
  // There is no name for the gate.
  if (config.naming == TensorNaming::kGpt2 && config.gated_ffn()) config.ffn_kind = FfnKind::kRelu;
  return config;
}

TEST(CountParametersTest, IsWhatTheTensorsHold) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 1000; ++round) {
    const ModelConfig config = RandomConfig(random);
    ASSERT_TRUE(Validate(config).ok()) << Validate(config);
    uint64_t total = 0;
    uint64_t vectors = 0;
    for (const TensorSpec& spec : ExpectedTensors(config)) {
      total += static_cast<uint64_t>(spec.shape.elements());
      if (spec.shape.rank() == 1) vectors += static_cast<uint64_t>(spec.shape.elements());
    }
    const ParameterCounts counts = CountParameters(config);
    ASSERT_EQ(counts.total, total) << round;
    ASSERT_EQ(counts.norms + counts.biases, vectors) << round;
    ASSERT_EQ(counts.embedding + counts.position_embedding + counts.lm_head + counts.attention_q +
                  counts.attention_k + counts.attention_v + counts.attention_o + counts.ffn_gate +
                  counts.ffn_up + counts.ffn_down + counts.norms + counts.biases,
              counts.total);
    ASSERT_EQ(counts.non_embedding, counts.total - counts.embedding - counts.position_embedding);
  }
}

}  // namespace
}  // namespace tlm
