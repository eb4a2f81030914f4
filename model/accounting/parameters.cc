#include "model/accounting/parameters.h"

namespace tlm {

ParameterCounts CountParameters(const ModelConfig& config) {
  const auto count = [](int64_t value) { return static_cast<uint64_t>(value); };
  const uint64_t layers = count(config.num_layers);
  const uint64_t d_model = count(config.d_model);
  const uint64_t head_norms = config.qk_norm ? 2 * count(config.head_dim) : 0;

  ParameterCounts counts;
  counts.embedding = count(config.vocab_size) * d_model;
  counts.lm_head = config.tie_word_embeddings ? 0 : counts.embedding;
  counts.attention_q = layers * d_model * count(config.q_size());
  counts.attention_k = layers * d_model * count(config.kv_size());
  counts.attention_v = counts.attention_k;
  counts.attention_o = counts.attention_q;
  counts.ffn_gate = layers * d_model * count(config.d_ff);
  counts.ffn_up = counts.ffn_gate;
  counts.ffn_down = counts.ffn_gate;
  counts.norms = layers * (2 * d_model + head_norms) + d_model;
  counts.total = counts.embedding + counts.position_embedding + counts.lm_head +
                 counts.attention_q + counts.attention_k + counts.attention_v + counts.attention_o +
                 counts.ffn_gate + counts.ffn_up + counts.ffn_down + counts.norms + counts.biases;
  counts.non_embedding = counts.total - counts.embedding - counts.position_embedding;
  return counts;
}

}  // namespace tlm
