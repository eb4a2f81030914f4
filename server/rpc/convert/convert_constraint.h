// Converts the constraint of a GenerateRequest.
#ifndef TLM_SERVER_RPC_CONVERT_CONVERT_CONSTRAINT_H_
#define TLM_SERVER_RPC_CONVERT_CONVERT_CONSTRAINT_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/rpc/convert/convert.h"
#include "server/serving/served_model.h"
#include "tlm/v1/generate.pb.h"

namespace tlm {

// Called by ConvertGenerate; nullopt when the request has no constraint. Errors as in
// server/rpc/convert/convert.h; RESOURCE_EXHAUSTED, reason CONSTRAINT_TOO_LARGE, for too much text.
absl::StatusOr<std::optional<CallConstraint>> ConvertConstraint(const v1::GenerateRequest& request,
                                                                const ServedModel& model);

absl::StatusOr<JsonOptions> ConvertJsonOptions(const v1::JsonOptions& from);

// Completes a new specification: notes the parts' names and checks the length of the texts.
absl::Status FinishConstraint(const ServedModel& model, CallConstraint& constraint);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CONVERT_CONVERT_CONSTRAINT_H_
