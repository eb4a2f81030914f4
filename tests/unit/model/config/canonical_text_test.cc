#include "model/config/canonical_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>
#include <vector>

namespace tlm {
namespace {

ModelConfig Base() {
  ModelConfig config;
  config.rope_theta = 10000.0;
  config.rope_scaling = RopeScaling{};
  config.num_layers = 2;
  config.quantisation = {QuantisationScheme{}};
  return config;
}

TEST(CanonicalTextTest, EveryChangeOfTheNumbersChangesIt) {
  using Change = std::function<void(ModelConfig&)>;
  const std::vector<Change> changes = {
      [](ModelConfig&) {},
      [](ModelConfig& c) { c.naming = TensorNaming::kCs336; },
      [](ModelConfig& c) { c.vocab_size = 1; },
      [](ModelConfig& c) { c.context_length = 1; },
      [](ModelConfig& c) { c.d_model = 1; },
      [](ModelConfig& c) { c.num_layers = 1; },
      [](ModelConfig& c) { c.num_heads = 1; },
      [](ModelConfig& c) { c.num_kv_heads = 1; },
      [](ModelConfig& c) { c.head_dim = 1; },
      [](ModelConfig& c) { c.d_ff = 1; },
      [](ModelConfig& c) { c.norm_kind = NormKind::kLayer; },
      [](ModelConfig& c) { c.norm_eps = std::nextafter(c.norm_eps, 1.0); },
      [](ModelConfig& c) { c.norm_eps_placement = NormEps::kOutsideRoot; },
      [](ModelConfig& c) { c.rope_theta = 10001.0; },
      [](ModelConfig& c) { c.rope_theta.reset(); },
      [](ModelConfig& c) { c.rope_theta = 0.0; },
      [](ModelConfig& c) { c.rope_layout = RopeLayout::kInterleaved; },
      [](ModelConfig& c) { c.rope_scaling.reset(); },
      [](ModelConfig& c) { c.rope_scaling->kind = RopeScaling::Kind::kYarn; },
      [](ModelConfig& c) { c.rope_scaling->factor = 8; },
      [](ModelConfig& c) { c.rope_scaling->low_freq_factor = 8; },
      [](ModelConfig& c) { c.rope_scaling->high_freq_factor = 8; },
      [](ModelConfig& c) { c.rope_scaling->original_context_length = 8; },
      [](ModelConfig& c) { c.rope_scaling->beta_fast = 8; },
      [](ModelConfig& c) { c.rope_scaling->beta_slow = 8; },
      [](ModelConfig& c) { c.rope_scaling->attention_factor = 8; },
      [](ModelConfig& c) { c.rope_scaling->truncate = false; },
      [](ModelConfig& c) { c.learned_positions = true; },
      [](ModelConfig& c) { c.qk_norm = true; },
      [](ModelConfig& c) { c.quantisation.clear(); },
      [](ModelConfig& c) { c.quantisation.push_back(c.quantisation[0]); },
      [](ModelConfig& c) { c.quantisation[0].format = QuantisationScheme::Format::kGptq; },
      [](ModelConfig& c) { c.quantisation[0].bits = 8; },
      [](ModelConfig& c) { c.quantisation[0].group_size = 32; },
      [](ModelConfig& c) { c.quantisation[0].symmetric = true; },
      [](ModelConfig& c) { c.quantisation[0].zeros_less_one = true; },
      [](ModelConfig& c) { c.quantisation[0].act_order = true; },
      [](ModelConfig& c) { c.sliding_window = 1; },
      [](ModelConfig& c) {
        c.full_attention = {true, false};
      },
      [](ModelConfig& c) {
        c.full_attention = {false, true};
      },
      [](ModelConfig& c) { c.ffn_kind = FfnKind::kGelu; },
      [](ModelConfig& c) { c.ffn_names.gate = 3; },
      [](ModelConfig& c) { c.ffn_names.up = 1; },
      [](ModelConfig& c) { c.ffn_names.down = 1; },
      [](ModelConfig& c) { c.biases.qkv = true; },
      [](ModelConfig& c) { c.biases.attention_output = true; },
      [](ModelConfig& c) { c.biases.ffn = true; },
      [](ModelConfig& c) { c.tie_word_embeddings = true; },
      [](ModelConfig& c) { c.eos_token_ids = {1}; },
      [](ModelConfig& c) {
        c.eos_token_ids = {1, 2};
      },
      [](ModelConfig& c) { c.bos_token_id = 0; },
  };
  std::set<std::string> texts;
  for (size_t i = 0; i < changes.size(); ++i) {
    ModelConfig config = Base();
    changes[i](config);
    EXPECT_TRUE(texts.insert(CanonicalText(config)).second) << "change " << i;
  }
}

TEST(CanonicalTextTest, NamesForPeopleDoNotMatter) {
  ModelConfig config = Base();
  config.model_type = "llama";
  config.architecture = "LlamaForCausalLM";
  config.weights_dtype = "bfloat16";
  EXPECT_EQ(CanonicalText(config), CanonicalText(Base()));
}

}  // namespace
}  // namespace tlm
