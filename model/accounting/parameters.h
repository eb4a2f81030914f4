// Counts the parameters of a configuration exactly, without its weights.
#ifndef TLM_MODEL_ACCOUNTING_PARAMETERS_H_
#define TLM_MODEL_ACCOUNTING_PARAMETERS_H_

#include <cstdint>

#include "model/config/model_config.h"

namespace tlm {

// A tied matrix is counted once, as embedding; lm_head is then 0. The components sum to `total`,
// the number of elements in the tensors of ExpectedTensors() (model/weights/name_map.h).
struct ParameterCounts {
  uint64_t total = 0;
  uint64_t embedding = 0;
  uint64_t position_embedding = 0;  // 0 unless positions are learned
  uint64_t lm_head = 0;
  uint64_t attention_q = 0;
  uint64_t attention_k = 0;
  uint64_t attention_v = 0;
  uint64_t attention_o = 0;
  uint64_t ffn_gate = 0;  // 0 without a gate
  uint64_t ffn_up = 0;
  uint64_t ffn_down = 0;
  uint64_t norms = 0;          // gains, including the gains of qk_norm
  uint64_t biases = 0;         // biases of linear maps and LayerNorms
  uint64_t non_embedding = 0;  // total without embedding and position_embedding
};

// `config` must be valid.
ParameterCounts CountParameters(const ModelConfig& config);

}  // namespace tlm

#endif  // TLM_MODEL_ACCOUNTING_PARAMETERS_H_
