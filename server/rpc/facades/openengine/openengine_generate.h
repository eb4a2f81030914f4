// Maps openengine.v1.Inference.Generate to tlm.v1's Generate and back.
#ifndef TLM_SERVER_RPC_FACADES_OPENENGINE_OPENENGINE_GENERATE_H_
#define TLM_SERVER_RPC_FACADES_OPENENGINE_OPENENGINE_GENERATE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "openengine/v1/generation.pb.h"
#include "server/rpc/facades/facade.h"
#include "server/rpc/facades/openengine/openengine_model.h"
#include "server/rpc/generate/generate_mapping.h"
#include "tlm/v1/generate.pb.h"

namespace tlm {

// The values of each metadata key of a call.
struct OpenEngineMetadata {
  std::vector<std::string> priority = {};            // openengine-priority
  std::vector<std::string> data_parallel_rank = {};  // openengine-target-dp-rank
};

// See GenerateMapping. The comments of the proto file say how each field is used.
class OpenEngineMapping final
    : public GenerateMapping<openengine::GenerateRequest, openengine::GenerateResponse> {
 public:
  explicit OpenEngineMapping(OpenEngineMetadata metadata) : metadata_(std::move(metadata)) {}

  absl::Status Read(openengine::GenerateRequest& request, const ServedModel& model,
                    v1::GenerateRequest& generate) override;
  // Dynamo sends a worker no requests for some seconds after a call that fails at once, unless it
  // was refused. A worker with a full queue must keep getting requests, or it would become idle.
  bool FailsAsStream(const absl::Status& status) const override {
    return absl::IsResourceExhausted(status);
  }
  absl::Status Refusal(absl::Status status) const override {
    return HeldAgainstRequest(std::move(status));
  }
  bool Write(v1::GenerateResponse& event, openengine::GenerateResponse& response) override;

 private:
  absl::Status ReadResponse(const openengine::ResponseOptions& response, const ServedModel& model,
                            v1::OutputOptions& output);
  bool WritePrompt(const v1::GeneratePrompt& prompt, openengine::GenerateResponse& response);
  void WriteTokens(v1::GenerateTokens& tokens, openengine::TokenOutput& output) const;
  // Keeps the last one back until the usage is known.
  bool WriteFinished(v1::GenerateFinished& finished, openengine::GenerateResponse& response);

  const OpenEngineMetadata metadata_;

  // Parts of the response that the request asks for.
  bool prompt_logprobs_ = false;
  uint32_t prompt_start_ = 0;
  int prompt_top_ = 0;  // alternatives at each position
  int top_ = 0;

  std::string request_id_;
  uint32_t prompt_tokens_ = 0;
  openengine::PromptOutput prompt_;  // built up so far
  uint32_t unfinished_ = 0;          // outputs not finished
  openengine::GenerationFinished last_;
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_FACADES_OPENENGINE_OPENENGINE_GENERATE_H_
