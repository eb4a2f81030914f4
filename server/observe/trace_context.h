// Reads and writes the trace of a call by W3C Trace Context (https://www.w3.org/TR/trace-context/,
// level 2).
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
  std::string tracestate;  // the caller's, unchanged

  // Returns the `traceparent` header with this span as the parent.
  std::string Traceparent() const;
};

// Returns the trace of the header `traceparent`, with a new span for this call from `random`. If
// the header is empty or malformed, a new trace that is not sampled, as the recommendation
// requires.
TraceContext TraceContextFrom(std::string_view traceparent,
                              const std::function<uint64_t()>& random);

// Joins the header `tracestate` from its parts in order of arrival. Empty if the result exceeds
// kMaxTracestateBytes or is not printable ASCII; the recommendation permits dropping it.
inline constexpr size_t kMaxTracestateBytes = 512;
std::string JoinTracestate(std::span<const std::string_view> parts);

}  // namespace tlm

#endif  // TLM_SERVER_OBSERVE_TRACE_CONTEXT_H_
