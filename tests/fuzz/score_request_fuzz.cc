// A ScoreRequest on the wire: refused, or continuations that fit behind their prompt.
#include "model/base/errors.h"
#include "server/rpc/convert/convert.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/served_model.h"

namespace tlm {
namespace {

void CheckAccepted(const ScoreCall& call, const ServedModel& model) {
  const RequestLimits& limits = model.limits;
  const auto prompt = static_cast<int64_t>(call.prompt.size());
  int64_t tokens = prompt;
  TLM_CHECK(prompt >= 1 && !call.work.continuations.empty());
  for (const std::vector<int32_t>& ids : call.work.continuations) {
    const auto length = static_cast<int64_t>(ids.size());
    TLM_CHECK(length >= 1 && prompt + length <= limits.max_context_tokens);
    for (const int32_t id : ids) TLM_CHECK(id >= 0 && id < model.config.vocab_size);
    tokens += length;
  }
  TLM_CHECK(tokens == call.total_tokens && tokens <= limits.max_forward_tokens);
}

}  // namespace
}  // namespace tlm

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return tlm::CheckRequest(data, size, tlm::ConvertScore, tlm::CheckAccepted);
}
