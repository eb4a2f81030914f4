// From a plan to the model's input.
#ifndef TLM_SERVER_BATCHING_BATCH_BUILDER_H_
#define TLM_SERVER_BATCHING_BATCH_BUILDER_H_

#include "model/transformer_lm/batch.h"
#include "server/batching/scheduler.h"

namespace tlm {

// Replaces `batch` by the plan's chunks, in their order; sequence i of the batch is chunk i. The
// logits rows of a chunk are consecutive and in the order of their positions.
void BuildBatch(const StepPlan& plan, Batch* batch);

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_BATCH_BUILDER_H_
