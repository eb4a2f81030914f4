// A ForwardRequest on the wire: refused, or rows that exist.
#include "model/base/errors.h"
#include "server/rpc/convert/convert.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/served_model.h"

namespace tlm {
namespace {

void CheckAccepted(const ForwardCall& call, const ServedModel& model) {
  const RequestLimits& limits = model.limits;
  int64_t tokens = 0;
  int64_t rows = 0;
  TLM_CHECK(!call.sequences.empty());
  for (size_t i = 0; i < call.sequences.size(); ++i) {
    const auto length = static_cast<int64_t>(call.sequences[i].size());
    TLM_CHECK(length >= 1 && length <= limits.max_context_tokens);
    for (const int32_t id : call.sequences[i]) TLM_CHECK(id >= 0 && id < model.config.vocab_size);
    int64_t last = -1;
    for (const int64_t position : call.PositionsOf(i)) {
      TLM_CHECK(position > last && position < length);
      last = position;
      ++rows;
    }
    tokens += length;
  }
  TLM_CHECK(tokens == call.total_tokens && tokens <= limits.max_forward_tokens);
  TLM_CHECK(rows == call.total_rows && rows <= limits.max_forward_rows);
}

}  // namespace
}  // namespace tlm

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return tlm::CheckRequest(data, size, tlm::ConvertForward, tlm::CheckAccepted);
}
