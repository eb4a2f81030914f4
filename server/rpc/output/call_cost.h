// Computes the FLOPs and bytes of a call.
#ifndef TLM_SERVER_RPC_OUTPUT_CALL_COST_H_
#define TLM_SERVER_RPC_OUTPUT_CALL_COST_H_

#include <cstdint>

#include "model/config/model_config.h"
#include "server/serving/served_model.h"

namespace tlm {

// Returns the FLOPs of the matrix products for a sequence's first `tokens` positions, each
// attending to itself and all earlier ones, with the LM head for `logits_rows` of them; a
// multiply-add counts 2. Recomputation after preemption is not included.
uint64_t SequenceFlops(const ModelConfig& config, int64_t tokens, int64_t logits_rows);

// Returns the bytes of weights that one step reads: all weights except an untied embedding matrix,
// of which a step reads single rows.
uint64_t StepWeightBytes(const ServedModel& model);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_OUTPUT_CALL_COST_H_
