// FLOPs of a configuration as messages of the wire contract.
#ifndef TLM_MODEL_DESCRIBE_FLOPS_H_
#define TLM_MODEL_DESCRIBE_FLOPS_H_

#include "absl/status/statusor.h"
#include "model/accounting/flops.h"
#include "model/config/model_config.h"
#include "tlm/v1/model_info.pb.h"

namespace tlm {

// The query with its defaults filled in: one sequence, and of a prompt the tokens that new_tokens
// leave of the context. Arithmetic needs no context, so longer shapes are counted too, up to
// ConfigLimits::kContextLength tokens a sequence; beyond, INVALID_ARGUMENT names the field
// ("flops.prompt_tokens"), which also travels as a detail.
absl::StatusOr<FlopsQuery> ResolveFlopsQuery(const v1::FlopsQuery& query,
                                             const ModelConfig& config);

// Fills an empty message with the answer to a resolved query.
void FillFlops(const ModelConfig& config, const FlopsQuery& query, v1::FlopsInfo& flops);

}  // namespace tlm

#endif  // TLM_MODEL_DESCRIBE_FLOPS_H_
