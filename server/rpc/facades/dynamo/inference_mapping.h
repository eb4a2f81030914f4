// Maps messages of vllm.Inference to messages of tlm.v1.LanguageModel.Generate and back.
#ifndef TLM_SERVER_RPC_FACADES_DYNAMO_INFERENCE_MAPPING_H_
#define TLM_SERVER_RPC_FACADES_DYNAMO_INFERENCE_MAPPING_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/rpc/facades/facade.h"
#include "server/rpc/generate/generate_mapping.h"
#include "server/serving/served_model.h"
#include "tlm/v1/generate.pb.h"
#include "vllm/inference.pb.h"

namespace tlm {

// See GenerateMapping. The comments of the proto file say how each field is used.
class InferenceMapping final
    : public GenerateMapping<vllm::GenerateRequest, vllm::GenerateResponse> {
 public:
  enum class Answer { kStream, kUnary };

  // `data_parallel_rank`: the metadata of that name; empty when absent.
  explicit InferenceMapping(Answer answer, std::string data_parallel_rank = "")
      : answer_(answer), data_parallel_rank_(std::move(data_parallel_rank)) {}

  absl::Status Read(vllm::GenerateRequest& request, const ServedModel& model,
                    v1::GenerateRequest& generate) override;
  // Dynamo sends a worker no requests for some seconds after a call that fails at once, unless it
  // was refused. A worker with a full queue must keep getting requests, or it would become idle.
  bool FailsAsStream(const absl::Status& status) const override {
    return absl::IsResourceExhausted(status);
  }
  absl::Status Refusal(absl::Status status) const override {
    return HeldAgainstRequest(std::move(status));
  }
  bool Write(v1::GenerateResponse& event, vllm::GenerateResponse& response) override;

 private:
  absl::Status ReadResponse(const vllm::GenerateRequest& request, const ServedModel& model,
                            v1::OutputOptions& output);
  bool WriteStarted(const v1::GenerateStarted& started, vllm::GenerateResponse& response);
  bool WritePrompt(const v1::GeneratePrompt& prompt, vllm::GenerateResponse& response);
  void WriteTokens(v1::GenerateTokens& tokens, vllm::SequenceOutput& output);
  void WriteFinished(v1::GenerateFinished& finished, vllm::SequenceOutput& output);
  void WriteEnd(uint32_t index, uint32_t id, vllm::SequenceOutput& output);

  const Answer answer_;
  const std::string data_parallel_rank_;

  // Parts of the response that the request asks for.
  bool prompt_ids_ = false;
  bool prompt_logprobs_ = false;
  bool token_ids_ = false;
  bool logprobs_ = false;
  bool include_stop_ = false;
  // The number of alternatives at each position.
  int prompt_top_ = 0;
  int top_ = 0;

  std::vector<uint32_t> given_ids_;      // the request's ids, if asked for
  uint32_t prompt_tokens_ = 0;           // number of tokens
  vllm::PromptInfo prompt_;              // built up so far
  std::vector<uint32_t> output_tokens_;  // tokens sent, by sequence
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_FACADES_DYNAMO_INFERENCE_MAPPING_H_
