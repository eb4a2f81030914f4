// GenerateRequest.resume: the tokens of an output that another replica has sent.
#ifndef TLM_SERVER_RPC_CONVERT_CONVERT_RESUME_H_
#define TLM_SERVER_RPC_CONVERT_CONVERT_RESUME_H_

#include "absl/status/status.h"
#include "server/rpc/convert/convert.h"
#include "server/serving/served_model.h"
#include "tlm/v1/generate.pb.h"

namespace tlm {

// For ConvertGenerate, with a resume point: sets the ids as the first tokens of `call`, which is
// complete except for its prompt. Errors as server/rpc/convert/convert.h says; FAILED_PRECONDITION,
// reason STALE_FINGERPRINT, when this server would continue with other tokens.
absl::Status ConvertResume(const v1::GenerateRequest& request, const ServedModel& model,
                           GenerateCall& call);

// INVALID_ARGUMENT when prompt and resumed output together exceed the context.
absl::Status CheckResumedLength(const GenerateCall& call, const RequestLimits& limits);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CONVERT_CONVERT_RESUME_H_
