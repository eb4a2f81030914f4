// LanguageModel.ModelInfo: what is served, its exact size, and every limit.
#ifndef TLM_SERVER_RPC_LANGUAGE_MODEL_MODEL_INFO_HANDLER_H_
#define TLM_SERVER_RPC_LANGUAGE_MODEL_MODEL_INFO_HANDLER_H_

#include "absl/status/status.h"
#include "server/serving/served_model.h"
#include "tlm/v1/model_info.pb.h"

namespace tlm {

// Grows with every addition to tlm.v1 that a client may want to test for.
inline constexpr uint32_t kApiRevision = 4;

// Answers from `model` alone, without the engine. NOT_FOUND for another model's name,
// INVALID_ARGUMENT for a `flops` query that is too long to count.
absl::Status GetModelInfo(const v1::ModelInfoRequest& request, const ServedModel& model,
                          v1::ModelInfoResponse& response);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_LANGUAGE_MODEL_MODEL_INFO_HANDLER_H_
