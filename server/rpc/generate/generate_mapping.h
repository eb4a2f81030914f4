// How another protocol writes a call of tlm.v1.LanguageModel.Generate.
#ifndef TLM_SERVER_RPC_GENERATE_GENERATE_MAPPING_H_
#define TLM_SERVER_RPC_GENERATE_GENERATE_MAPPING_H_

#include "absl/status/status.h"
#include "server/serving/served_model.h"
#include "tlm/v1/generate.pb.h"

namespace tlm {

// One per call, which it may remember things of. Used by one thread at a time.
template <typename RequestMessage, typename ResponseMessage>
class GenerateMapping {
 public:
  using Request = RequestMessage;
  using Response = ResponseMessage;

  GenerateMapping() = default;
  GenerateMapping(const GenerateMapping&) = delete;
  GenerateMapping& operator=(const GenerateMapping&) = delete;
  virtual ~GenerateMapping() = default;

  // Moves `request` into the empty `generate`. Once, first. INVALID_ARGUMENT, or UNIMPLEMENTED,
  // names a field that `generate` cannot express; ConvertGenerate checks the values.
  // `model` outlives the call.
  virtual absl::Status Read(Request& request, const ServedModel& model,
                            v1::GenerateRequest& generate) = 0;

  // What clients of the protocol are told when `status`, of Read or ConvertGenerate, refuses the
  // request.
  virtual absl::Status Refusal(absl::Status status) const { return status; }
  // Of a stream: as StreamingCall's.
  virtual bool FailsAsStream(const absl::Status& /*status*/) const { return false; }

  // The next event of the call, in the order of tlm.v1: adds it to `response`, which it may keep
  // from. Of a stream: true if `response`, empty before, is to be sent. Of a unary call: every
  // event adds to the one response.
  virtual bool Write(v1::GenerateResponse& event, Response& response) = 0;
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_GENERATE_GENERATE_MAPPING_H_
