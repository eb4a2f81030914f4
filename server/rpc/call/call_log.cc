#include "server/rpc/call/call_log.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "model/base/error_details.h"
#include "server/observe/call_summary.h"
#include "server/observe/line_limit.h"
#include "server/observe/log.h"
#include "server/observe/log_event.h"

namespace tlm {
namespace {

using Json = nlohmann::ordered_json;

// Three digits behind the point.
double Milliseconds(absl::Duration time) {
  return static_cast<double>(absl::ToInt64Microseconds(time)) / 1000;
}

// The parts of the call's span, with ids that follow from its own.
class Spans {
 public:
  explicit Spans(const CallRecord& record) : record_(record) {}

  void Add(std::string_view name, absl::Time begin, absl::Duration length) {
    Json span;
    span["name"] = name;
    span["span_id"] = NextId();
    span["start_ms"] = Milliseconds(begin - record_.arrival);
    span["duration_ms"] = Milliseconds(length);
    spans_.push_back(std::move(span));
  }
  Json Take() { return std::move(spans_); }

 private:
  // Never the call's own, never all zero: an odd number is added to 64 bits, a few times.
  std::string NextId() {
    uint64_t id = 0;
    for (const char c : record_.trace.span_id) {
      id = id << 4 | static_cast<uint64_t>(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    id += 0x9e3779b97f4a7c15u * ++count_;
    return fmt::format("{:016x}", id == 0 ? 1 : id);
  }

  const CallRecord& record_;
  uint64_t count_ = 0;
  Json spans_ = Json::array();
};

Json SpansOf(const CallRecord& record, absl::Time end) {
  Spans spans(record);
  if (!record.admitted) return spans.Take();
  const absl::Duration queue = record.started ? record.queue_time : end - record.queued;
  spans.Add("queue", record.queued, queue);
  absl::Time begin = record.queued + queue;
  if (record.prefill_time.has_value() && record.decode_time.has_value()) {
    spans.Add("prefill", begin, *record.prefill_time);
    begin += *record.prefill_time;
    spans.Add("decode", begin, *record.decode_time);
  } else if (record.first_token.has_value()) {
    spans.Add("prefill", begin, *record.first_token - begin);
    spans.Add("decode", *record.first_token, end - *record.first_token);
  } else if (record.started) {
    spans.Add("compute", begin, end - begin);
  }
  if (record.first_write.has_value()) {
    spans.Add("write", *record.first_write, end - *record.first_write);
  }
  return spans.Take();
}

Json FieldsOf(const CallRecord& record, const CallSummary& summary) {
  Json line;
  line["request_id"] = record.request_id;
  line["rpc"] = record.rpc;
  line["tenant"] = record.caller.tenant;
  line["credential"] = record.caller.credential;
  line["peer"] = record.peer;
  line["trace_id"] = record.trace.trace_id;
  line["span_id"] = record.trace.span_id;
  line["parent_span_id"] = record.trace.parent_span_id;
  line["sampled"] = record.trace.sampled;
  if (!record.trace.tracestate.empty()) line["tracestate"] = record.trace.tracestate;
  line["code"] = absl::StatusCodeToString(summary.code);
  line["reason"] = summary.reason;
  line["admitted"] = summary.admitted;
  if (!record.finish.empty()) line["finish"] = record.finish;
  line["prompt_tokens"] = record.prompt_tokens;
  line["cached_prompt_tokens"] = record.cached_prompt_tokens;
  line["completion_tokens"] = record.completion_tokens;
  line["queue_ms"] = Milliseconds(record.queue_time);
  if (record.first_token.has_value()) {
    line["ttft_ms"] = Milliseconds(*record.first_token - record.arrival);
  }
  line["total_ms"] = Milliseconds(summary.total);
  line["spans"] = SpansOf(record, record.arrival + summary.total);
  return line;
}

// name=value pairs; numbers that are 0 are left out, as they are of most calls.
std::string TextOf(const CallRecord& record, const CallSummary& summary) {
  std::string line = fmt::format("request rpc={} id={} tenant={} status={}", record.rpc,
                                 LogQuoted(record.request_id), LogQuoted(record.caller.tenant),
                                 absl::StatusCodeToString(summary.code));
  const auto add_count = [&line](std::string_view name, int64_t count) {
    if (count != 0) line += fmt::format(" {}={}", name, count);
  };
  const auto add_time = [&line](std::string_view name, absl::Duration time) {
    const std::string shown = fmt::format("{:.1f}", absl::ToDoubleMilliseconds(time));
    if (shown != "0.0") line += fmt::format(" {}={}", name, shown);
  };
  if (!summary.reason.empty()) line += fmt::format(" reason={}", summary.reason);
  add_count("prompt_tokens", record.prompt_tokens);
  add_count("cached_tokens", record.cached_prompt_tokens);
  add_count("completion_tokens", record.completion_tokens);
  add_time("queue_ms", record.queue_time);
  if (record.first_token.has_value()) add_time("ttft_ms", *record.first_token - record.arrival);
  add_time("total_ms", summary.total);
  return line + fmt::format(" peer={} trace={}", record.peer, record.trace.trace_id);
}

// Nullopt: not now. Otherwise how many lines were left out before this one.
std::optional<int64_t> MayLog(const CallRecord& record, absl::Time now) {
  static LineLimit limit(/*lines=*/10);
  if (record.access.ok()) return 0;
  return limit.Take(now);
}

void LogFault(const CallRecord& record) {
  const absl::string_view message = record.status.message();
  const std::string_view text(message.data(), message.size());
  if (CurrentLogFormat() == LogFormat::kText) {
    spdlog::error("request id={} failed: {}", LogQuoted(record.request_id), text);
    return;
  }
  Json line;
  line["request_id"] = record.request_id;
  line["trace_id"] = record.trace.trace_id;
  line["error"] = text;
  LogEvent(spdlog::level::err, "request failed", line);
}

void LogCall(const CallRecord& record, const CallSummary& summary) {
  if (spdlog::should_log(spdlog::level::info)) {
    const std::optional<int64_t> left_out = MayLog(record, record.arrival + summary.total);
    if (!left_out.has_value()) return;
    if (*left_out > 0) spdlog::warn("{} calls without credentials left no line", *left_out);
    if (CurrentLogFormat() == LogFormat::kText) {
      spdlog::info("{}", TextOf(record, summary));
    } else {
      LogEvent(spdlog::level::info, "request", FieldsOf(record, summary));
    }
  }
  if (absl::IsInternal(record.status) || absl::IsDataLoss(record.status)) LogFault(record);
}

CallSummary SummaryOf(const CallRecord& record) {
  CallSummary summary;
  summary.rpc = record.rpc;
  summary.tenant = record.caller.tenant;
  summary.used_engine = record.admitted;
  summary.admitted = record.admitted || record.status.ok();
  summary.code = record.status.code();
  summary.reason = ReasonOf(record.status);
  summary.finish = record.finish;
  summary.prompt_tokens = record.prompt_tokens;
  summary.cached_prompt_tokens = record.cached_prompt_tokens;
  summary.completion_tokens = record.completion_tokens;
  summary.total = record.clock->Now() - record.arrival;
  if (record.started) summary.queue = record.queue_time;
  summary.prefill = record.prefill_time;
  summary.decode = record.decode_time;
  return summary;
}

}  // namespace

void EndCall(const CallRecord& record) {
  const CallSummary summary = SummaryOf(record);
  if (summary.admitted && !record.admitted) {
    record.metrics->CountAdmitted(record.rpc, record.caller.tenant);
  }
  record.metrics->CountEnd(summary);
  LogCall(record, summary);
}

}  // namespace tlm
