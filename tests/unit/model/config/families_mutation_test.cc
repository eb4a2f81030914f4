// Every key of every family, spoilt in every way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "model/config/config_reader.h"
#include "model/config/families.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const json& Bases() {
  static const json* const kBases = new json(json::parse(R"([
    {"model_type": "cs336", "vocab_size": 512, "context_length": 128, "d_model": 64,
     "num_layers": 5, "num_heads": 8, "d_ff": 172, "rope_theta": 10000.0, "ffn_type": "silu",
     "eps": 1e-5},
    {"model_type": "qwen3_mha", "d_model": 24, "n_head": 3, "d_hidden": 41, "n_layer": 2,
     "vocab_size": 61, "max_seq_len": 96, "rope_theta": 10000.0},
    {"model_type": "gpt2", "vocab_size": 300, "n_positions": 64, "n_embd": 48, "n_layer": 3,
     "n_head": 6, "n_inner": 99, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
     "scale_attn_weights": true, "scale_attn_by_inverse_layer_idx": false,
     "add_cross_attention": false, "tie_word_embeddings": true, "bos_token_id": 1,
     "eos_token_id": [1, 2]},
    {"model_type": "llama", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 172,
     "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 8,
     "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 5e5, "hidden_act": "silu",
     "attention_bias": true, "mlp_bias": true, "tie_word_embeddings": true, "bos_token_id": 1,
     "eos_token_id": 2,
     "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                      "high_freq_factor": 4.0, "original_max_position_embeddings": 64}},
    {"model_type": "mistral", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 172,
     "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 4,
     "max_position_embeddings": 128, "sliding_window": 7,
     "layer_types": ["sliding_attention", "sliding_attention"]},
    {"model_type": "qwen2", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 172,
     "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 4,
     "max_position_embeddings": 128, "use_sliding_window": true, "sliding_window": 7,
     "max_window_layers": 1,
     "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "beta_fast": 16.0,
                         "beta_slow": 2.0, "truncate": false, "mscale": 1.0,
                         "mscale_all_dim": 0.5, "original_max_position_embeddings": 32}},
    {"model_type": "qwen3", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 172,
     "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 24,
     "max_position_embeddings": 128, "use_sliding_window": true, "sliding_window": 7,
     "layer_types": ["full_attention", "sliding_attention"], "attention_bias": false},
    {"model_type": "transformer_lm", "vocab_size": 61, "context_length": 96, "d_model": 24,
     "num_layers": 2, "num_heads": 4, "d_ff": 37, "norm": "layer", "norm_eps": 0.01,
     "norm_eps_placement": "outside", "rope_layout": "half", "rope_theta": 100.0,
     "rope_scaling": {"type": "linear", "factor": 2.0}, "learned_positions": true,
     "qk_norm": true, "num_kv_heads": 2, "head_dim": 6, "sliding_window": 9, "qkv_bias": true,
     "attention_output_bias": true, "ffn_bias": true, "ffn_type": "swiglu", "ffn_gate": "w1",
     "ffn_up": "w2", "ffn_down": "w3", "tensor_naming": "cs336", "tie_word_embeddings": true,
     "bos_token_id": 0, "eos_token_id": 1}
  ])"));
  return *kBases;
}

const json& Values() {
  static const json* const kValues = new json(json::parse(R"([
    null, true, false, 0, 1, -1, 2, 3, 7, 65536, 16777216, 16777217, 2147483648,
    9223372036854775807, -9223372036854775808, 18446744073709551615, 0.5, -0.0, 1e-300, 1e300,
    1.5, "", "x", "silu", [], [1], [-1], ["x"], [[]], {}, {"x": 1}, {"rope_type": "yarn"}
  ])"));
  return *kValues;
}

// Whether the configuration is one the rest of the program can rely on, or a refusal that says why.
void ExpectValidOrNamed(const json& config, const std::string& key) {
  SCOPED_TRACE(config.dump());
  const auto read = ParseModelConfig(config.dump());
  if (read.ok()) {
    EXPECT_THAT(Validate(*read), IsOk());
    return;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(read.status()) || absl::IsUnimplemented(read.status()));
  EXPECT_FALSE(read.status().message().empty());
  EXPECT_EQ(read.status().message().find('\n'), std::string::npos);
  if (config.contains(key) && config[key].is_structured()) {
    EXPECT_THAT(std::string(read.status().message()), HasSubstr(key));
  }
}

TEST(FamiliesMutationTest, TheBasesAreGoodAndOneAFamily) {
  EXPECT_EQ(Bases().size(), Families().size());
  for (const json& base : Bases()) EXPECT_THAT(ParseModelConfig(base.dump()), IsOk());
}

TEST(FamiliesMutationTest, AnyValueOfAnyKeyIsReadOrRefusedByName) {
  for (const json& base : Bases()) {
    for (const auto& [key, value] : base.items()) {
      for (const json& other : Values()) {
        json config = base;
        config[key] = other;
        ExpectValidOrNamed(config, key);
      }
      json config = base;
      config.erase(key);
      ExpectValidOrNamed(config, key);
    }
  }
}

}  // namespace
}  // namespace tlm
