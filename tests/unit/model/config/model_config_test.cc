#include "model/config/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

ModelConfig ValidConfig() {
  ModelConfig config;
  config.model_type = "llama";
  config.vocab_size = 100;
  config.context_length = 64;
  config.d_model = 48;
  config.num_layers = 2;
  config.num_heads = 6;
  config.num_kv_heads = 2;
  config.head_dim = 8;
  config.d_ff = 96;
  config.rope_theta = 10000.0;
  config.eos_token_ids = {1, 2};
  config.bos_token_id = 0;
  return config;
}

TEST(ModelConfigTest, AcceptsAConfigInRange) { EXPECT_THAT(Validate(ValidConfig()), IsOk()); }

TEST(ModelConfigTest, AcceptsTheLimitsThemselves) {
  ModelConfig config = ValidConfig();
  config.vocab_size = ConfigLimits::kVocabSize;
  config.context_length = ConfigLimits::kContextLength;
  config.d_model = ConfigLimits::kDModel;
  config.num_layers = ConfigLimits::kNumLayers;
  config.num_heads = ConfigLimits::kNumHeads;
  config.num_kv_heads = ConfigLimits::kNumHeads;
  config.head_dim = ConfigLimits::kHeadDim;
  config.d_ff = ConfigLimits::kDFf;
  EXPECT_THAT(Validate(config), IsOk());
}

TEST(ModelConfigTest, AcceptsAnOddHeadDimWithoutRotaryPositions) {
  ModelConfig config = ValidConfig();
  config.head_dim = 7;
  config.rope_theta.reset();
  EXPECT_THAT(Validate(config), IsOk());
}

TEST(ModelConfigTest, SizesCountHeadsTimesHeadDim) {
  const ModelConfig config = ValidConfig();
  EXPECT_EQ(config.q_size(), 48);
  EXPECT_EQ(config.kv_size(), 16);
}

TEST(ModelConfigTest, WindowIsByLayer) {
  ModelConfig config = ValidConfig();
  EXPECT_EQ(config.WindowOf(1), 0);
  config.sliding_window = 5;
  EXPECT_EQ(config.WindowOf(1), 5);
  config.full_attention = {false, true};
  EXPECT_EQ(config.WindowOf(0), 5);
  EXPECT_EQ(config.WindowOf(1), 0);
  EXPECT_THAT(Validate(config), IsOk());
}

RopeScaling Scaling(RopeScaling::Kind kind) {
  RopeScaling scaling;
  scaling.kind = kind;
  scaling.factor = 4;
  scaling.original_context_length = 32;
  return scaling;
}

TEST(ModelConfigTest, AcceptsEveryKindOfRopeScaling) {
  for (const auto kind :
       {RopeScaling::Kind::kLinear, RopeScaling::Kind::kLlama3, RopeScaling::Kind::kYarn}) {
    ModelConfig config = ValidConfig();
    config.rope_scaling = Scaling(kind);
    EXPECT_THAT(Validate(config), IsOk());
  }
}

TEST(ModelConfigTest, RefusalsNameFieldValueAndLimit) {
  struct BadConfig {
    std::function<void(ModelConfig&)> spoil;
    const char* field;
    const char* detail;
  };
  const BadConfig configs[] = {
      {[](auto& c) { c.vocab_size = 0; }, "vocab_size is 0", "16777216"},
      {[](auto& c) { c.vocab_size = ConfigLimits::kVocabSize + 1; }, "vocab_size is 16777217",
       "16777216"},
      {[](auto& c) { c.context_length = -1; }, "context_length is -1", "16777216"},
      {[](auto& c) { c.context_length = ConfigLimits::kContextLength + 1; },
       "context_length is 16777217", "16777216"},
      {[](auto& c) { c.d_model = ConfigLimits::kDModel + 1; }, "d_model is 131073", "131072"},
      {[](auto& c) { c.d_model = std::numeric_limits<int64_t>::min(); },
       "d_model is -9223372036854775808", "131072"},
      {[](auto& c) { c.num_layers = 0; }, "num_layers is 0", "4096"},
      {[](auto& c) { c.num_layers = 4097; }, "num_layers is 4097", "4096"},
      {[](auto& c) { c.num_heads = 0; }, "num_heads is 0", "4096"},
      {[](auto& c) { c.num_heads = 4098; }, "num_heads is 4098", "4096"},
      {[](auto& c) { c.num_kv_heads = 0; }, "num_kv_heads is 0", "4096"},
      {[](auto& c) { c.num_kv_heads = 4; }, "num_heads is 6", "num_kv_heads, which is 4"},
      {[](auto& c) { c.num_kv_heads = 12; }, "num_heads is 6", "num_kv_heads, which is 12"},
      {[](auto& c) { c.head_dim = 0; }, "head_dim is 0", "1024"},
      {[](auto& c) { c.head_dim = 1026; }, "head_dim is 1026", "1024"},
      {[](auto& c) { c.head_dim = 7; }, "head_dim is 7", "even"},
      {[](auto& c) { c.d_ff = ConfigLimits::kDFf + 1; }, "d_ff is 1048577", "1048576"},
      {[](auto& c) { c.norm_eps = 0; }, "norm_eps is 0", "between 1e-30 and 1"},
      {[](auto& c) { c.norm_eps = 1.5; }, "norm_eps is 1.5", "and 1"},
      {[](auto& c) { c.norm_eps = std::nan(""); }, "norm_eps is nan", "between"},
      {[](auto& c) { c.rope_theta = 0; }, "rope_theta is 0", "between 1e-09"},
      {[](auto& c) { c.rope_theta = std::numeric_limits<double>::infinity(); }, "rope_theta is inf",
       "and 1e+18"},
      {[](auto& c) { c.rope_theta = std::nan(""); }, "rope_theta is nan", "between"},
      {[](auto& c) {
         c.rope_theta.reset();
         c.rope_scaling = RopeScaling{.factor = 2};
       },
       "rope_scaling is given", "no rotary positions"},
      {[](auto& c) { c.rope_scaling = RopeScaling{.factor = 0.5}; }, "rope_scaling.factor is 0.5",
       "between 1 and"},
      {[](auto& c) { c.rope_scaling = RopeScaling{.factor = std::nan("")}; },
       "rope_scaling.factor is nan", "between 1 and"},
      {[](auto& c) {
         c.rope_scaling = RopeScaling{.factor = std::numeric_limits<double>::infinity()};
       },
       "rope_scaling.factor is inf", "and 1e+18"},
      {[](auto& c) {
         c.rope_scaling = Scaling(RopeScaling::Kind::kLlama3);
         c.rope_scaling->original_context_length = ConfigLimits::kContextLength + 1;
       },
       "original_max_position_embeddings is 16777217", "16777216"},
      {[](auto& c) {
         c.rope_scaling = Scaling(RopeScaling::Kind::kLlama3);
         c.rope_scaling->low_freq_factor = std::nan("");
       },
       "rope_scaling.low_freq_factor is nan", "between"},
      {[](auto& c) {
         c.rope_scaling = Scaling(RopeScaling::Kind::kLlama3);
         c.rope_scaling->high_freq_factor = 1;
       },
       "rope_scaling.high_freq_factor is 1", "low_freq_factor, which is 1"},
      {[](auto& c) {
         c.rope_scaling = Scaling(RopeScaling::Kind::kYarn);
         c.rope_scaling->beta_fast = std::numeric_limits<double>::infinity();
       },
       "rope_scaling.beta_fast is inf", "and 1e+18"},
      {[](auto& c) {
         c.rope_scaling = Scaling(RopeScaling::Kind::kYarn);
         c.rope_scaling->attention_factor = -1;
       },
       "rope_scaling.attention_factor is -1", "between 1e-06 and"},
      {[](auto& c) {
         c.rope_scaling = Scaling(RopeScaling::Kind::kYarn);
         c.rope_theta = 0.5;
       },
       "rope_theta is 0.5", "above 1"},
      {[](auto& c) { c.sliding_window = 0; }, "sliding_window is 0", "above 0"},
      {[](auto& c) { c.full_attention = {true}; }, "layer_types has 1 elements",
       "each of 2 layers"},
      {[](auto& c) { c.ffn_names.up = 1; }, "are 1, 1 and 2", "ffn_gate, ffn_up and ffn_down"},
      {[](auto& c) { c.ffn_names.up = 64; }, "are 1, 64 and 2", "ffn_gate, ffn_up and ffn_down"},
      {[](auto& c) { c.naming = TensorNaming::kGpt2; }, "ffn_type is 'swiglu'", "'gpt2'"},
      {[](auto& c) {
         c.eos_token_ids = {1, 100};
       },
       "eos_token_id is 100", "between 0 and 99"},
      {[](auto& c) { c.eos_token_ids = {-1}; }, "eos_token_id is -1", "between 0 and 99"},
      {[](auto& c) { c.eos_token_ids.assign(1025, 0); }, "eos_token_id names 1025", "1024"},
      {[](auto& c) { c.bos_token_id = 100; }, "bos_token_id is 100", "between 0 and 99"}};
  for (const BadConfig& bad : configs) {
    ModelConfig config = ValidConfig();
    bad.spoil(config);
    EXPECT_THAT(Validate(config), IsInvalidArgument(bad.field, bad.detail));
  }
}

}  // namespace
}  // namespace tlm
