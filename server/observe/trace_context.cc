#include "server/observe/trace_context.h"

#include <fmt/format.h>

#include <algorithm>

namespace tlm {
namespace {

bool IsHex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool IsId(std::string_view text) {
  return IsHex(text) && text.find_first_not_of('0') != std::string_view::npos;
}

uint64_t NonZero(const std::function<uint64_t()>& random) {
  uint64_t bits = 0;
  while (bits == 0) bits = random();
  return bits;
}

// Parses version "-" trace-id "-" parent-id "-" flags; future versions may add "-" and more.
constexpr size_t kHeaderBytes = 55;

bool IsWellFormed(std::string_view header) {
  if (header.size() < kHeaderBytes || header[2] != '-' || header[35] != '-' || header[52] != '-') {
    return false;
  }
  const std::string_view version = header.substr(0, 2);
  if (!IsHex(version) || version == "ff") return false;
  if (header.size() > kHeaderBytes && (version == "00" || header[kHeaderBytes] != '-'))
    return false;
  return IsId(header.substr(3, 32)) && IsId(header.substr(36, 16)) && IsHex(header.substr(53, 2));
}

}  // namespace

std::string TraceContext::Traceparent() const {
  return fmt::format("00-{}-{}-{:02x}", trace_id, span_id, sampled ? 1 : 0);
}

TraceContext TraceContextFrom(std::string_view traceparent,
                              const std::function<uint64_t()>& random) {
  TraceContext trace;
  trace.span_id = fmt::format("{:016x}", NonZero(random));
  if (!IsWellFormed(traceparent)) {
    trace.trace_id = fmt::format("{:016x}{:016x}", NonZero(random), random());
    return trace;
  }
  trace.trace_id = traceparent.substr(3, 32);
  trace.parent_span_id = traceparent.substr(36, 16);
  const char last = traceparent[54];
  trace.sampled = ((last >= 'a' ? last - 'a' + 10 : last - '0') & 1) != 0;
  return trace;
}

std::string JoinTracestate(std::span<const std::string_view> parts) {
  std::string joined;
  for (const std::string_view part : parts) {
    if (part.size() + joined.size() >= kMaxTracestateBytes) return {};
    if (!joined.empty()) joined += ',';
    joined += part;
  }
  const auto printable = [](char c) { return c == '\t' || (c >= ' ' && c <= '~'); };
  return std::all_of(joined.begin(), joined.end(), printable) ? joined : std::string();
}

}  // namespace tlm
