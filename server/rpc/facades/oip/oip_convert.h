// Converts the Open Inference Protocol's requests to tlm.v1's, and answers back.
#ifndef TLM_SERVER_RPC_FACADES_OIP_OIP_CONVERT_H_
#define TLM_SERVER_RPC_FACADES_OIP_OIP_CONVERT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "inference/open_inference.pb.h"
#include "server/serving/served_model.h"
#include "tlm/v1/generate.pb.h"

namespace tlm {

// The only version of a model.
inline constexpr char kOipModelVersion[] = "1";

// The outputs of a model in the protocol.
enum class OipOutput { kText, kTokenIds, kFinishReason };

struct OipCall {
  v1::GenerateRequest request;     // one output, in one `tokens` event
  std::vector<OipOutput> outputs;  // in the order of the answer
  bool raw = false;                // tensors as raw bytes, like the request's
};

// An output and its finish reason.
struct OipAnswer {
  std::string text;
  std::vector<int32_t> ids;
  v1::FinishReason reason = v1::FINISH_REASON_UNSPECIFIED;
};

// NOT_FOUND for a model or version that is not served.
absl::Status CheckOipModel(const std::string& name, const std::string& version,
                           const ServedModel& model);

// Checks everything that ConvertGenerate does not. INVALID_ARGUMENT names the tensor or the
// parameter, its value and the allowed values; FAILED_PRECONDITION for text when the model has no
// tokenizer.
absl::StatusOr<OipCall> ConvertOip(const inference::ModelInferRequest& request,
                                   const ServedModel& model);

void FillOipResponse(const OipCall& call, const OipAnswer& answer, const std::string& request_id,
                     const ServedModel& model, inference::ModelInferResponse& response);

void FillOipMetadata(const ServedModel& model, inference::ModelMetadataResponse& response);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_FACADES_OIP_OIP_CONVERT_H_
