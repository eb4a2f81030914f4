// W3C Trace Context (https://www.w3.org/TR/trace-context/, level 2): which trace a call belongs to.
#ifndef TLM_SERVER_OBSERVE_TRACE_CONTEXT_H_
#define TLM_SERVER_OBSERVE_TRACE_CONTEXT_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace tlm {

struct TraceContext {
  std::string trace_id;        // 32 lower-case hexadecimal digits, not all 0
  std::string span_id;         // 16: this call's own span
  std::string parent_span_id;  // 16: the caller's; empty: the trace begins here
  bool sampled = false;
  std::string tracestate;  // what the caller's vendors keep there, as it came

  // The header for whoever is called next, or is told about this call.
  std::string Traceparent() const;
};

// The trace that the header `traceparent` names, with a span of this call's own made of `random`;
// a new trace, not sampled, when the header is empty or malformed, as the recommendation asks.
TraceContext TraceContextFrom(std::string_view traceparent,
                              const std::function<uint64_t()>& random);

// The header `tracestate` out of its parts, in the order they came: joined as lists are. Empty when
// they are longer than kMaxTracestateBytes together or not printable ASCII: the recommendation lets
// a receiver drop what it does not want to keep.
inline constexpr size_t kMaxTracestateBytes = 512;
std::string JoinTracestate(std::span<const std::string_view> parts);

}  // namespace tlm

#endif  // TLM_SERVER_OBSERVE_TRACE_CONTEXT_H_
