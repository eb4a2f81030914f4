// Turns a plan into the model's input.
#ifndef TLM_SERVER_BATCHING_BATCH_BUILDER_H_
#define TLM_SERVER_BATCHING_BATCH_BUILDER_H_

#include "model/ops/batch.h"
#include "server/batching/scheduler.h"

namespace tlm {

// Replaces `batch` by the plan's chunks, in order; sequence i of the batch is chunk i. The logits
// rows of a chunk are consecutive and ascend by position. A row that samples has one sampling job
// or, where a request branches, one for each output that is still wanted, the sequence's own first.
// Any other row goes to the host, to be delivered or to score a token.
//
// An unknown token is the one that its sequence samples in the previously launched batch; no other
// batch may be launched in between. Jobs point into their sequences.
void BuildBatch(const StepPlan& plan, Batch* batch);

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_BATCH_BUILDER_H_
