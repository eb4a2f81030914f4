#include "server/rpc/call/call_log.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "model/base/errors.h"
#include "server/observe/call_summary.h"
#include "server/observe/log.h"

namespace tlm {
namespace {

using Json = nlohmann::ordered_json;

// Returns milliseconds with three decimals.
double Milliseconds(absl::Duration time) {
  return static_cast<double>(absl::ToInt64Microseconds(time)) / 1000;
}

// Returns the path of the field at fault, cut before a quoted name, which the client chose: see
// field_error.h.
std::string FieldForLog(const absl::Status& status) {
  std::string field = FieldOf(status);
  const auto in_path = [](char c) {
    return absl::ascii_isalnum(c) || absl::StrContains("_-.[]", c);
  };
  field.erase(std::ranges::find_if_not(field, in_path), field.end());
  while (field.ends_with('[') || field.ends_with('.')) field.pop_back();
  return field;
}

Json SpansOf(const CallRecord& record, absl::Time end) {
  Json spans = Json::array();
  for (const CallPhase& phase : PhasesOf(record, end)) {
    Json span;
    span["name"] = phase.name;
    span["span_id"] = phase.span_id;
    span["start_ms"] = Milliseconds(phase.begin - record.arrival);
    span["duration_ms"] = Milliseconds(phase.length);
    spans.push_back(std::move(span));
  }
  return spans;
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
  if (std::string field = FieldForLog(record.status); !field.empty()) {
    line["field"] = std::move(field);
  }
  line["admitted"] = summary.admitted;
  if (!summary.finish.empty()) line["finish"] = summary.finish;
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

// name=value pairs; numbers that are 0, as they are in most calls, are left out.
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
  const std::string field = FieldForLog(record.status);
  if (!field.empty()) line += fmt::format(" field={}", field);
  add_count("prompt_tokens", record.prompt_tokens);
  add_count("cached_tokens", record.cached_prompt_tokens);
  add_count("completion_tokens", record.completion_tokens);
  add_time("queue_ms", record.queue_time);
  if (record.first_token.has_value()) add_time("ttft_ms", *record.first_token - record.arrival);
  add_time("total_ms", summary.total);
  return line + fmt::format(" peer={} trace={}", record.peer, record.trace.trace_id);
}

// Returns nullopt if no line may be logged now, otherwise the number of lines left out before this
// one.
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
  if (LogsCalls() && spdlog::should_log(spdlog::level::info)) {
    const std::optional<int64_t> left_out = MayLog(record, record.arrival + summary.total);
    if (!left_out.has_value()) return;
    if (*left_out > 0) {
      spdlog::warn("{} calls without valid credentials were not logged", *left_out);
    }
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
  if (!record.finishes.empty()) summary.finish = record.finishes.front();
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
  if (record.observer != nullptr) record.observer->OnCallEnd(record, summary);
  LogCall(record, summary);
}

}  // namespace tlm
