// Maps Generate of vllm.grpc.engine.VllmEngine to tlm.v1's Generate and back.
#ifndef TLM_SERVER_RPC_FACADES_VLLM_VLLM_GENERATE_H_
#define TLM_SERVER_RPC_FACADES_VLLM_VLLM_GENERATE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "server/rpc/generate/generate_mapping.h"
#include "vllm/grpc/engine/vllm_engine.pb.h"

namespace tlm {

namespace vllm_engine = ::vllm::grpc::engine;

// Writes a `chunk` for each `tokens` event of a stream, and one `complete` for each output's
// `finished` event.
class VllmGenerateMapping final
    : public GenerateMapping<vllm_engine::GenerateRequest, vllm_engine::GenerateResponse> {
 public:
  // INVALID_ARGUMENT or UNIMPLEMENTED name a field that tlm.v1 cannot express.
  absl::Status Read(vllm_engine::GenerateRequest& request, const ServedModel& model,
                    v1::GenerateRequest& generate) override;
  bool Write(v1::GenerateResponse& event, vllm_engine::GenerateResponse& response) override;

 private:
  // Data for an output's first message, and data kept for its last.
  struct Output {
    bool begun = false;
    std::vector<uint32_t> ids;
    vllm_engine::OutputLogProbs logprobs;
  };

  Output& OutputOf(uint32_t index);
  bool WriteTokens(v1::GenerateTokens& tokens, vllm_engine::GenerateResponse& response);
  void WriteComplete(const v1::GenerateFinished& finished, vllm_engine::GenerateComplete& complete);

  bool stream_ = false;
  // Number of alternatives at each position; nullopt: no log-probabilities.
  std::optional<int32_t> logprobs_;
  std::optional<int32_t> prompt_logprobs_;
  uint32_t prompt_tokens_ = 0;
  uint32_t cached_tokens_ = 0;
  vllm_engine::InputLogProbs prompt_;
  std::vector<Output> outputs_;
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_FACADES_VLLM_VLLM_GENERATE_H_
