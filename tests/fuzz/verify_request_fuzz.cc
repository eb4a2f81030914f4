// A VerifyRequest on the wire: refused, or a claim behind a prompt that the engine may take without
// another look.
#include "model/base/errors.h"
#include "server/rpc/convert/convert.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/served_model.h"

namespace tlm {
namespace {

void CheckAccepted(const GenerateCall& call, const ServedModel& model) {
  const GenerateWork& work = call.work;
  for (const std::vector<int32_t>* ids : {&call.prompt, &work.claimed}) {
    TLM_CHECK(!ids->empty());
    for (const int32_t id : *ids) TLM_CHECK(id >= 0 && id < model.config.vocab_size);
  }
  const RequestLimits& limits = model.limits;
  const auto prompt = static_cast<int64_t>(call.prompt.size());
  const auto claimed = static_cast<int64_t>(work.claimed.size());
  TLM_CHECK(prompt <= limits.max_prompt_tokens());
  TLM_CHECK(prompt + claimed <= limits.max_context_tokens);
  TLM_CHECK(work.generated.empty() && work.max_draft_tokens == 0);
  TLM_CHECK(call.num_sequences == 1);
  TLM_CHECK(work.output_index < static_cast<uint64_t>(limits.max_num_sequences));
  TLM_CHECK(call.soft_time_limit == absl::InfiniteDuration());
}

}  // namespace
}  // namespace tlm

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return tlm::CheckRequest(data, size, tlm::ConvertVerify, tlm::CheckAccepted);
}
