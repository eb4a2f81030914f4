// Generate requests of the protocols of others on the wire: refused, or a request of tlm.v1 whose
// events make answers. The first byte chooses the protocol, the second what the metadata say.
#include <string>
#include <string_view>
#include <type_traits>

#include "model/base/errors.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/facades/dynamo/inference_mapping.h"
#include "server/rpc/facades/openengine/openengine_generate.h"
#include "server/rpc/facades/vllm/vllm_generate.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/served_model.h"

namespace tlm {
namespace {

v1::TokenInfo Token(int32_t id, int64_t top) {
  v1::TokenInfo token;
  token.set_id(static_cast<uint32_t>(id));
  token.set_bytes("\xe2\x82");
  token.set_logprob(-1);
  token.set_rank(1);
  for (int64_t i = 0; i < top; ++i) token.add_top()->set_id(static_cast<uint32_t>(i));
  return token;
}

// Passes the event on; whether a message is to be sent.
template <typename Mapping>
bool Write(v1::GenerateResponse& event, Mapping& mapping) {
  typename Mapping::Response response;
  const bool sent = mapping.Write(event, response);
  Consume(response.ByteSizeLong());
  event.Clear();
  return sent;
}

template <typename Mapping>
void CheckAnswer(const GenerateCall& call, bool prompt_logprobs, Mapping& mapping) {
  v1::GenerateResponse event;
  event.mutable_started()->set_prompt_token_count(static_cast<uint32_t>(call.prompt.size()));
  event.mutable_started()->mutable_effective()->set_num_sequences(
      static_cast<uint32_t>(call.num_sequences));
  Write(event, mapping);
  for (size_t i = 0; prompt_logprobs && i < call.prompt.size(); ++i) {
    event.mutable_prompt()->set_offset(static_cast<uint32_t>(i));
    *event.mutable_prompt()->add_tokens() = Token(call.prompt[i], call.work.score.top);
    Write(event, mapping);
  }
  bool ended = false;
  for (int64_t i = 0; i < call.num_sequences; ++i) {
    event.mutable_tokens()->set_output_index(static_cast<uint32_t>(i));
    *event.mutable_tokens()->add_tokens() = Token(7, call.work.score.top);
    Write(event, mapping);
    event.mutable_finished()->set_output_index(static_cast<uint32_t>(i));
    event.mutable_finished()->set_reason(v1::FINISH_REASON_EOS);
    event.mutable_finished()->set_eos_token_id(0);
    ended = Write(event, mapping);
  }
  event.mutable_summary();
  TLM_CHECK(Write(event, mapping) || ended);
}

template <typename Mapping>
void Check(std::string_view bytes, Mapping&& mapping) {
  typename std::remove_reference_t<Mapping>::Request request;
  if (!request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  v1::GenerateRequest generate;
  const absl::Status read = mapping.Read(request, FuzzServedModel(), generate);
  if (!read.ok()) return CheckRefusal(read);
  const auto call = ConvertGenerate(generate, FuzzServedModel(), FuzzRandom);
  if (!call.ok()) return CheckRefusal(call.status());
  CheckAnswer(*call, generate.output().prompt_logprobs(), mapping);
}

}  // namespace
}  // namespace tlm

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using tlm::InferenceMapping;
  tlm::FuzzInput input(data, size);
  const uint8_t protocol = input.Byte() % 4;
  const std::string metadata(input.Bytes(1));
  const std::string_view message = input.Rest();
  if (protocol == 0) tlm::Check(message, tlm::VllmGenerateMapping());
  if (protocol == 1) {
    tlm::Check(message, InferenceMapping(InferenceMapping::Answer::kStream, metadata));
  }
  if (protocol == 2) {
    tlm::Check(message, InferenceMapping(InferenceMapping::Answer::kUnary));
  }
  if (protocol == 3) {
    tlm::Check(message, tlm::OpenEngineMapping({.priority = {metadata}}));
  }
  return 0;
}
