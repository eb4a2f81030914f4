#include "model/accounting/parameters.h"

#include <gtest/gtest.h>

namespace tlm {
namespace {

ModelConfig Qwen3(int64_t d_model, int64_t layers, int64_t heads, int64_t d_ff, bool tied) {
  ModelConfig config;
  config.vocab_size = 151936;
  config.context_length = 40960;
  config.d_model = d_model;
  config.num_layers = layers;
  config.num_heads = heads;
  config.num_kv_heads = 8;
  config.head_dim = 128;
  config.d_ff = d_ff;
  config.qk_norm = true;
  config.tie_word_embeddings = tied;
  return config;
}

ModelConfig Llama(int64_t vocab, int64_t d_model, int64_t layers, int64_t heads, int64_t kv_heads,
                  int64_t d_ff, bool tied) {
  ModelConfig config;
  config.vocab_size = vocab;
  config.context_length = 8192;
  config.d_model = d_model;
  config.num_layers = layers;
  config.num_heads = heads;
  config.num_kv_heads = kv_heads;
  config.head_dim = d_model / heads;
  config.d_ff = d_ff;
  config.tie_word_embeddings = tied;
  return config;
}

// The totals are those of the published checkpoints.
TEST(CountParametersTest, PublishedTotals) {
  EXPECT_EQ(CountParameters(Qwen3(1024, 28, 16, 3072, true)).total, 596049920u);
  EXPECT_EQ(CountParameters(Qwen3(2560, 36, 32, 9728, true)).total, 4022468096u);
  EXPECT_EQ(CountParameters(Qwen3(4096, 36, 32, 12288, false)).total, 8190735360u);
  EXPECT_EQ(CountParameters(Llama(128256, 4096, 32, 32, 8, 14336, false)).total, 8030261248u);
  EXPECT_EQ(CountParameters(Llama(128256, 2048, 16, 32, 8, 8192, true)).total, 1235814400u);
  EXPECT_EQ(CountParameters(Llama(32000, 2048, 22, 32, 4, 5632, false)).total, 1100048384u);
}

TEST(CountParametersTest, ComponentsSumToTheTotal) {
  const ParameterCounts counts = CountParameters(Qwen3(4096, 36, 32, 12288, false));
  EXPECT_EQ(counts.embedding + counts.position_embedding + counts.lm_head + counts.attention_q +
                counts.attention_k + counts.attention_v + counts.attention_o + counts.ffn_gate +
                counts.ffn_up + counts.ffn_down + counts.norms + counts.biases,
            counts.total);
  EXPECT_EQ(counts.non_embedding, counts.total - uint64_t{151936} * 4096);
  EXPECT_EQ(counts.lm_head, uint64_t{151936} * 4096);
}

}  // namespace
}  // namespace tlm
