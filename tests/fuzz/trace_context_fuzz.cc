// The header `traceparent`: whatever it says, the call has a trace.

#include "model/base/errors.h"
#include "server/observe/trace_context.h"
#include "tests/fuzz/fuzz_input.h"

namespace tlm {
namespace {

bool IsId(std::string_view text, size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == text.npos &&
         text.find_first_not_of('0') != text.npos;
}

}  // namespace
}  // namespace tlm

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uint64_t next = 0;
  const auto random = [&next] { return ++next; };
  const tlm::TraceContext context =
      tlm::TraceContextFrom(tlm::FuzzInput(data, size).Rest(), random);
  TLM_CHECK(tlm::IsId(context.trace_id, 32));
  TLM_CHECK(tlm::IsId(context.span_id, 16));
  TLM_CHECK(context.parent_span_id.empty() || tlm::IsId(context.parent_span_id, 16));
  const tlm::TraceContext called = tlm::TraceContextFrom(context.Traceparent(), random);
  TLM_CHECK(called.trace_id == context.trace_id);
  TLM_CHECK(called.parent_span_id == context.span_id);
  TLM_CHECK(called.sampled == context.sampled);
  return 0;
}
