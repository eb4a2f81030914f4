// What a call cost the machine, from what it computed.
#ifndef TLM_SERVER_RPC_OUTPUT_CALL_COST_H_
#define TLM_SERVER_RPC_OUTPUT_CALL_COST_H_

#include <cstdint>

#include "model/config/model_config.h"
#include "server/serving/served_model.h"

namespace tlm {

// Matrix products for a sequence's first `tokens` positions, each attending to itself and those
// before it, with the LM head for `logits_rows` of them; multiply-add = 2. What a preemption had to
// compute again is not in it.
uint64_t SequenceFlops(const ModelConfig& config, int64_t tokens, int64_t logits_rows);

// Bytes of weights that one step reads: all of them but an embedding matrix that is not the LM head
// too, of which it looks up single rows.
uint64_t StepWeightBytes(const ServedModel& model);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_OUTPUT_CALL_COST_H_
