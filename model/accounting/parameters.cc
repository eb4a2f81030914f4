#include "model/accounting/parameters.h"

namespace tlm {
namespace {

uint64_t U64(int64_t value) { return static_cast<uint64_t>(value); }

// Counts the biases of the norms and of the linear maps of one layer.
uint64_t LayerBiases(const ModelConfig& config) {
  const int64_t d_model = config.d_model;
  int64_t biases = 0;
  if (config.norm_kind == NormKind::kLayer) biases += 2 * d_model;
  if (config.biases.qkv) biases += config.q_size() + 2 * config.kv_size();
  if (config.biases.attention_output) biases += d_model;
  if (config.biases.ffn) biases += (config.gated_ffn() ? 2 : 1) * config.d_ff + d_model;
  return U64(biases);
}

}  // namespace

ParameterCounts CountParameters(const ModelConfig& config) {
  const uint64_t layers = U64(config.num_layers);
  const uint64_t d_model = U64(config.d_model);
  const uint64_t head_norms = config.qk_norm ? 2 * U64(config.head_dim) : 0;
  const bool has_norm_biases = config.norm_kind == NormKind::kLayer;

  ParameterCounts counts;
  counts.embedding = U64(config.vocab_size) * d_model;
  counts.position_embedding = config.learned_positions ? U64(config.context_length) * d_model : 0;
  counts.lm_head = config.tie_word_embeddings ? 0 : counts.embedding;
  counts.attention_q = layers * d_model * U64(config.q_size());
  counts.attention_k = layers * d_model * U64(config.kv_size());
  counts.attention_v = counts.attention_k;
  counts.attention_o = counts.attention_q;
  counts.ffn_up = layers * d_model * U64(config.d_ff);
  counts.ffn_down = counts.ffn_up;
  counts.ffn_gate = config.gated_ffn() ? counts.ffn_up : 0;
  counts.norms = layers * (2 * d_model + head_norms) + d_model;
  counts.biases = layers * LayerBiases(config) + (has_norm_biases ? d_model : 0);
  counts.total = counts.embedding + counts.position_embedding + counts.lm_head +
                 counts.attention_q + counts.attention_k + counts.attention_v + counts.attention_o +
                 counts.ffn_gate + counts.ffn_up + counts.ffn_down + counts.norms + counts.biases;
  counts.non_embedding = counts.total - counts.embedding - counts.position_embedding;
  return counts;
}

}  // namespace tlm
