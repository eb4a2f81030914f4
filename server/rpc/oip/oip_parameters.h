// The parameters of an Open Inference Protocol request.
#ifndef TLM_SERVER_RPC_OIP_OIP_PARAMETERS_H_
#define TLM_SERVER_RPC_OIP_OIP_PARAMETERS_H_

#include "absl/status/status.h"
#include "inference/open_inference.pb.h"
#include "tlm/v1/generate.pb.h"

namespace tlm {

// Puts them where `request` has them. INVALID_ARGUMENT names a parameter that is not known, is of
// the wrong type, or is no number of its field; ranges are ConvertGenerate's to check.
absl::Status ReadOipParameters(const inference::ModelInferRequest& message,
                               v1::GenerateRequest& request);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_OIP_OIP_PARAMETERS_H_
