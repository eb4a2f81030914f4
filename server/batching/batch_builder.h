// From a plan to the model's input.
#ifndef TLM_SERVER_BATCHING_BATCH_BUILDER_H_
#define TLM_SERVER_BATCHING_BATCH_BUILDER_H_

#include "model/ops/batch.h"
#include "server/batching/scheduler.h"

namespace tlm {

// Replaces `batch` by the plan's chunks, in their order; sequence i of the batch is chunk i. The
// logits rows of a chunk are consecutive and in the order of their positions. Each either gives
// tokens, one sampling job for it or, where a request branches, one for every output that is still
// wanted, the sequence's own first; or else it goes to the host, to be delivered or to score a
// token.
//
// A token that is not known yet is the one that its sequence samples in the batch launched before,
// which no other may follow. Jobs point into their sequences.
void BuildBatch(const StepPlan& plan, Batch* batch);

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_BATCH_BUILDER_H_
