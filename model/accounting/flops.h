// Counts the floating-point operations of a configuration's matrix products.
#ifndef TLM_MODEL_ACCOUNTING_FLOPS_H_
#define TLM_MODEL_ACCOUNTING_FLOPS_H_

#include <cstdint>

#include "model/config/model_config.h"

namespace tlm {

// A workload: `batch` sequences, each with a prompt computed in one pass and then `new_tokens`
// tokens computed one at a time.
struct FlopsQuery {
  uint64_t batch = 1;
  uint64_t prompt_tokens = 0;
  uint64_t new_tokens = 0;
};

// A multiply-add counts 2. Only matrix products count: no biases, norms, activations, rotations or
// table look-ups. A pass over T tokens counts the full T x T square of scores, including pairs that
// the causal mask or a sliding window hides, and the LM head for every position, tied or not. The
// i-th new token, from 1, attends to prompt_tokens + i positions. A gated feed-forward network has
// three products, others have two. Counts saturate at 64 bits.
struct FlopsCount {
  uint64_t qkv = 0;
  uint64_t scores = 0;        // query times key
  uint64_t weighted_sum = 0;  // attention weights times values
  uint64_t output_projection = 0;
  uint64_t ffn_up = 0;
  uint64_t ffn_gate = 0;  // 0 without a gate
  uint64_t ffn_down = 0;
  uint64_t lm_head = 0;
  uint64_t total = 0;  // the sum of the above

  uint64_t per_token_linear = 0;                 // all components except scores and weighted_sum
  uint64_t attention_per_token_per_context = 0;  // scores and weighted sum
};

// `config` must be valid. The query may be longer than the configuration's context.
FlopsCount CountFlops(const ModelConfig& config, const FlopsQuery& query);

}  // namespace tlm

#endif  // TLM_MODEL_ACCOUNTING_FLOPS_H_
