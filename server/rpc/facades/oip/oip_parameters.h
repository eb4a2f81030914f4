// Reads the parameters of an Open Inference Protocol request.
#ifndef TLM_SERVER_RPC_FACADES_OIP_OIP_PARAMETERS_H_
#define TLM_SERVER_RPC_FACADES_OIP_OIP_PARAMETERS_H_

#include "absl/status/status.h"
#include "inference/open_inference.pb.h"
#include "tlm/v1/generate.pb.h"

namespace tlm {

// Copies the parameters of `message` to the fields of `request`. INVALID_ARGUMENT names a parameter
// that is unknown, of the wrong type, or not representable in its field; ConvertGenerate checks
// ranges.
absl::Status ReadOipParameters(const inference::ModelInferRequest& message,
                               v1::GenerateRequest& request);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_FACADES_OIP_OIP_PARAMETERS_H_
