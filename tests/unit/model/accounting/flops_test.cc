#include "model/accounting/flops.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "model/accounting/parameters.h"
#include "model/config/config_reader.h"
#include "model/config/presets.h"

namespace tlm {
namespace {

ModelConfig Small() {
  ModelConfig config;
  config.vocab_size = 100;
  config.context_length = 64;
  config.d_model = 16;
  config.num_layers = 3;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 8;  // q_size 32, kv_size 16
  config.d_ff = 40;
  return config;
}

TEST(CountFlopsTest, CountsEveryProductOfAPass) {
  const FlopsCount count = CountFlops(Small(), {.batch = 2, .prompt_tokens = 10});
  EXPECT_EQ(count.qkv, 2u * 3 * 16 * (32 + 16 + 16) * 20);
  EXPECT_EQ(count.scores, 2u * 3 * 32 * 10 * 10 * 2);
  EXPECT_EQ(count.weighted_sum, count.scores);
  EXPECT_EQ(count.output_projection, 2u * 3 * 32 * 16 * 20);
  EXPECT_EQ(count.ffn_up, 2u * 3 * 16 * 40 * 20);
  EXPECT_EQ(count.ffn_gate, count.ffn_up);
  EXPECT_EQ(count.ffn_down, count.ffn_up);
  EXPECT_EQ(count.lm_head, 2u * 100 * 16 * 20);
  EXPECT_EQ(count.total, count.qkv + 2 * count.scores + count.output_projection + 3 * count.ffn_up +
                             count.lm_head);
}

TEST(CountFlopsTest, NewTokensAttendToWhatPrecedesThem) {
  const FlopsCount count = CountFlops(Small(), {.prompt_tokens = 5, .new_tokens = 3});
  EXPECT_EQ(count.scores, 2u * 3 * 32 * (5 * 5 + 6 + 7 + 8));
  EXPECT_EQ(count.total, 8 * count.per_token_linear +
                             (5 * 5 + 6 + 7 + 8) * count.attention_per_token_per_context);
}

TEST(CountFlopsTest, HoldsAtTheLargestNumberInsteadOfWrapping) {
  ModelConfig config = Small();
  config.vocab_size = ConfigLimits::kVocabSize;
  config.d_model = ConfigLimits::kDModel;
  config.num_layers = ConfigLimits::kNumLayers;
  const FlopsCount count =
      CountFlops(config, {.batch = 1u << 31, .prompt_tokens = 1u << 31, .new_tokens = 0});
  EXPECT_EQ(count.lm_head, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(count.total, std::numeric_limits<uint64_t>::max());
}

TEST(CountFlopsTest, UngatedNetworkHasTwoProducts) {
  ModelConfig config = Small();
  config.ffn_kind = FfnKind::kRelu;
  const FlopsCount count = CountFlops(config, {.prompt_tokens = 10});
  EXPECT_EQ(count.ffn_gate, 0u);
  EXPECT_EQ(count.ffn_up, 2u * 3 * 16 * 40 * 10);
  EXPECT_EQ(count.ffn_down, count.ffn_up);
  EXPECT_EQ(count.total, 10 * count.per_token_linear + 100 * count.attention_per_token_per_context);
}

TEST(CountFlopsTest, SlidingWindowChangesNothing) {
  ModelConfig config = Small();
  config.sliding_window = 4;
  EXPECT_EQ(CountFlops(config, {.prompt_tokens = 10}).total,
            CountFlops(Small(), {.prompt_tokens = 10}).total);
}

ModelConfig Preset(const std::string& name) {
  const absl::StatusOr<ModelConfig> config = ParseModelConfig(PresetConfig(name).value_or(""));
  EXPECT_TRUE(config.ok()) << name << ": " << config.status();
  return config.value_or(ModelConfig());
}

struct Gpt2Size {
  const char* preset;
  uint64_t layers, d_model;
};

// 24 d^2 + 4 d T a layer and token, 2 d V a token: four times d the inner width, as many key as
// query heads.
TEST(CountFlopsTest, Gpt2SizesByTheFormula) {
  for (const Gpt2Size& size : {Gpt2Size{"gpt2", 12, 768}, Gpt2Size{"gpt2-medium", 24, 1024},
                               Gpt2Size{"gpt2-large", 36, 1280}, Gpt2Size{"gpt2-xl", 48, 1600}}) {
    const uint64_t d = size.d_model;
    for (const uint64_t tokens : {1u, 1024u, 16384u}) {
      EXPECT_EQ(CountFlops(Preset(size.preset), {.batch = 3, .prompt_tokens = tokens}).total,
                3 * tokens * (size.layers * (24 * d * d + 4 * d * tokens) + 2 * d * 50257))
          << size.preset << " " << tokens;
    }
  }
}

}  // namespace
}  // namespace tlm
