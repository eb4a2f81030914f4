// Maps another protocol's messages to a call of tlm.v1.LanguageModel.Generate and back.
#ifndef TLM_SERVER_RPC_GENERATE_GENERATE_MAPPING_H_
#define TLM_SERVER_RPC_GENERATE_GENERATE_MAPPING_H_

#include "absl/status/status.h"
#include "server/serving/served_model.h"
#include "tlm/v1/generate.pb.h"

namespace tlm {

// Made for one call, about which it may keep state. Used by one thread at a time.
template <typename RequestMessage, typename ResponseMessage>
class GenerateMapping {
 public:
  using Request = RequestMessage;
  using Response = ResponseMessage;

  GenerateMapping() = default;
  GenerateMapping(const GenerateMapping&) = delete;
  GenerateMapping& operator=(const GenerateMapping&) = delete;
  virtual ~GenerateMapping() = default;

  // Moves `request` into the empty `generate`. Called once, first. INVALID_ARGUMENT or
  // UNIMPLEMENTED names a field that `generate` cannot express; ConvertGenerate checks the values.
  // `model` outlives the call.
  virtual absl::Status Read(Request& request, const ServedModel& model,
                            v1::GenerateRequest& generate) = 0;

  // Returns the status for the protocol's clients when `status`, from Read or ConvertGenerate,
  // refuses the request.
  virtual absl::Status Refusal(absl::Status status) const { return status; }
  // For a stream: see StreamingCall.
  virtual bool FailsAsStream(const absl::Status& /*status*/) const { return false; }

  // Adds the next event of the call, in the order of tlm.v1, to `response`; may keep parts of it
  // for later. For a stream: true if `response`, which was empty, is to be sent. For a unary call:
  // every event adds to the only response.
  virtual bool Write(v1::GenerateResponse& event, Response& response) = 0;
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_GENERATE_GENERATE_MAPPING_H_
