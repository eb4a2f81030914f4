// A GenerateRequest on the wire: refused, or work that the engine may take without another look;
// what it resumes is then passed through the assembler of its output.
#include <algorithm>

#include "model/base/errors.h"
#include "server/auth/principal.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/output/output_assembler.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/served_model.h"

namespace tlm {
namespace {

void CheckIds(const std::vector<int32_t>& ids, const ServedModel& model) {
  for (const int32_t id : ids) TLM_CHECK(id >= 0 && id < model.config.vocab_size);
}

void CheckSampling(const SamplingParams& sampling, const ServedModel& model) {
  // Written so that NaN fails.
  TLM_CHECK(sampling.temperature >= 0);
  TLM_CHECK(sampling.top_p > 0 && sampling.top_p <= 1);
  TLM_CHECK(sampling.min_p >= 0 && sampling.min_p <= 1);
  CheckIds(sampling.allowed_token_ids, model);
  CheckIds(sampling.banned_token_ids, model);
}

// A client that has the resumed tokens gets the others, however they come.
void PlayOutput(const GenerateCall& call, const ServedModel& model) {
  OutputAssembler output(call.output, call.work, model.tokenizer,
                         static_cast<int64_t>(call.prompt.size()));
  const absl::Status replayed = output.Replay(call.work.generated);
  if (!replayed.ok()) return CheckRefusal(replayed);
  v1::GenerateTokens event;
  int64_t tokens = 0;
  for (const int32_t id : call.prompt) {
    SampledToken token;
    token.id = id;
    output.Append(std::move(token));
    while (output.NextEvent(event)) {
      tokens += event.tokens_size();
      event.Clear();
    }
  }
  output.Close(FinishReason::kLength, -1);
  while (output.NextEvent(event)) {
    tokens += event.tokens_size();
    event.Clear();
  }
  // Tokens without text wait for ever where text alone is asked for.
  TLM_CHECK(output.ended() && (!call.output.token_infos || output.backlog() == 0));
  TLM_CHECK(tokens <= output.completion_tokens());
}

void CheckAccepted(const GenerateCall& call, const ServedModel& model) {
  const RequestLimits& limits = model.limits;
  const auto prompt = static_cast<int64_t>(call.prompt.size());
  TLM_CHECK(prompt >= 1 && prompt <= limits.max_prompt_tokens());
  TLM_CHECK(prompt + static_cast<int64_t>(call.work.generated.size()) <= limits.max_context_tokens);
  TLM_CHECK(call.num_sequences >= 1 && call.num_sequences <= limits.max_num_sequences);
  TLM_CHECK(std::abs(call.priority) <= kMaxPriority);
  TLM_CHECK(call.soft_time_limit > absl::ZeroDuration());
  CheckIds(call.prompt, model);
  CheckIds(call.work.generated, model);
  CheckIds(call.work.stop.stop_token_ids, model);
  CheckSampling(call.work.sampling, model);
  PlayOutput(call, model);
}

}  // namespace
}  // namespace tlm

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tlm::v1::GenerateRequest request;
  if (!request.ParseFromArray(data, static_cast<int>(size))) return 0;
  const tlm::ServedModel& model = tlm::FuzzServedModel();
  const auto id = tlm::RequestIdOf(request.request_id(), model, tlm::FuzzRandom);
  if (!id.ok()) tlm::CheckRefusal(id.status());
  const auto call = tlm::ConvertGenerate(request, model, tlm::FuzzRandom);
  if (call.ok()) {
    tlm::CheckAccepted(*call, model);
  } else {
    tlm::CheckRefusal(call.status());
  }
  return 0;
}
