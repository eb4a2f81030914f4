// The constraint of a GenerateRequest.
#ifndef TLM_SERVER_RPC_CONVERT_CONVERT_CONSTRAINT_H_
#define TLM_SERVER_RPC_CONVERT_CONVERT_CONSTRAINT_H_

#include <optional>

#include "absl/status/statusor.h"
#include "server/rpc/convert/convert.h"
#include "server/serving/served_model.h"
#include "tlm/v1/generate.pb.h"

namespace tlm {

// For ConvertGenerate; none without one. Errors as server/rpc/convert/convert.h says;
// RESOURCE_EXHAUSTED, reason CONSTRAINT_TOO_LARGE, for too much text.
absl::StatusOr<std::optional<CallConstraint>> ConvertConstraint(const v1::GenerateRequest& request,
                                                                const ServedModel& model);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CONVERT_CONVERT_CONSTRAINT_H_
