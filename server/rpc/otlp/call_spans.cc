#include "server/rpc/otlp/call_spans.h"

#include <fmt/format.h>

#include "absl/strings/escaping.h"
#include "model/text/utf8.h"

namespace tlm {
namespace {

using Attributes = google::protobuf::RepeatedPtrField<otlp_common::KeyValue>;
using otlp_trace::Span;

// Bits of Span.flags in addition to the flags of `traceparent`.
constexpr uint32_t kSampled = 0x1;
constexpr uint32_t kRemoteIsKnown = 0x100;
constexpr uint32_t kRemoteParent = 0x200;

std::string Bytes(const std::string& hex) { return absl::HexStringToBytes(hex); }

// A collector refuses a whole batch for one string that is not UTF-8, such as a directory's name.
std::string Utf8(std::string_view text) {
  if (IsValidUtf8(text)) return std::string(text);
  std::string repaired;
  Utf8Repair repair;
  repair.Append(text, &repaired);
  repair.Flush(&repaired);
  return repaired;
}

otlp_common::AnyValue& Add(std::string_view key, Attributes& attributes) {
  otlp_common::KeyValue& attribute = *attributes.Add();
  attribute.set_key(key.data(), key.size());
  return *attribute.mutable_value();
}

void AddNumber(std::string_view key, int64_t value, Attributes& attributes) {
  Add(key, attributes).set_int_value(value);
}
void AddReal(std::string_view key, double value, Attributes& attributes) {
  Add(key, attributes).set_double_value(value);
}
// Writes the number as the client did: 0.95, not 0.949999988.
void AddParameter(std::string_view key, float value, Attributes& attributes) {
  AddReal(key, std::stod(fmt::format("{}", value)), attributes);
}

// "text_completion NAME", or the method's name for calls without model work.
std::string NameOf(const CallRecord& record, const std::string& method) {
  if (record.operation.empty()) return method;
  return std::string(record.operation).append(" ").append(record.model);
}

// Returns whether the conventions for gRPC count a status as an error of the server.
bool IsServerError(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDataLoss:
      return true;
    default:
      return false;
  }
}

// Returns the name in OpenAI's API and vLLM; "stop" covers end of sequence, stop tokens and stop
// strings.
std::string_view FinishReasonOf(std::string_view finish) {
  const bool stop = finish == "eos" || finish == "stop_token" || finish == "stop_string" ||
                    finish == "constraint_complete";
  return stop ? "stop" : finish == "context_length" ? "length" : finish;
}

void AddCall(const CallRecord& record, const CallSummary& summary, const std::string& method,
             Attributes& attributes) {
  const std::string code = absl::StatusCodeToString(summary.code);
  AddAttribute("rpc.system.name", "grpc", attributes);
  AddAttribute("rpc.method", method, attributes);
  AddAttribute("rpc.status_code", code, attributes);
  if (IsServerError(summary.code)) AddAttribute("error.type", code, attributes);
  AddAttribute("network.peer.address", record.peer, attributes);
  if (!summary.reason.empty()) AddAttribute("tlm.reason", summary.reason, attributes);
  if (!summary.tenant.empty()) AddAttribute("tlm.tenant", summary.tenant, attributes);
  if (!record.request_id.empty()) {
    AddAttribute("tlm.request_id", record.request_id, attributes);
  }
}

void AddRequest(const GenerateFacts& facts, Attributes& attributes) {
  if (facts.streaming) Add("gen_ai.request.stream", attributes).set_bool_value(true);
  AddParameter("gen_ai.request.temperature", facts.temperature, attributes);
  AddParameter("gen_ai.request.top_p", facts.top_p, attributes);
  if (facts.top_k != 0) {
    AddReal("gen_ai.request.top_k", static_cast<double>(facts.top_k), attributes);
  }
  if (facts.presence_penalty != 0) {
    AddParameter("gen_ai.request.presence_penalty", facts.presence_penalty, attributes);
  }
  if (facts.frequency_penalty != 0) {
    AddParameter("gen_ai.request.frequency_penalty", facts.frequency_penalty, attributes);
  }
  AddNumber("gen_ai.request.max_tokens", facts.max_new_tokens, attributes);
  if (facts.num_sequences != 1) {
    AddNumber("gen_ai.request.choice.count", facts.num_sequences, attributes);
  }
  if (facts.seed.has_value()) {
    AddNumber("gen_ai.request.seed", static_cast<int64_t>(*facts.seed), attributes);
  }
}

void AddModel(const CallRecord& record, Attributes& attributes) {
  AddAttribute("gen_ai.operation.name", record.operation, attributes);
  AddAttribute("gen_ai.provider.name", "tlm", attributes);
  AddAttribute("gen_ai.request.model", record.model, attributes);
  if (record.generate.has_value()) AddRequest(*record.generate, attributes);
  if (!record.admitted) return;
  AddAttribute("gen_ai.response.model", record.model, attributes);
  AddNumber("gen_ai.usage.input_tokens", record.prompt_tokens, attributes);
  AddNumber("gen_ai.usage.cache_read.input_tokens", record.cached_prompt_tokens, attributes);
  if (record.generate.has_value()) {
    AddAttribute("gen_ai.response.id", record.request_id, attributes);
    AddNumber("gen_ai.usage.output_tokens", record.completion_tokens, attributes);
    if (record.regions.has_value()) {
      AddNumber("gen_ai.usage.reasoning.output_tokens", record.regions->reasoning_tokens,
                attributes);
    }
  }
  if (record.first_token.has_value()) {
    AddReal("gen_ai.server.time_to_first_token",
            absl::ToDoubleSeconds(*record.first_token - record.arrival), attributes);
  }
  if (record.finishes.empty()) return;
  otlp_common::ArrayValue& reasons =
      *Add("gen_ai.response.finish_reasons", attributes).mutable_array_value();
  for (const std::string_view finish : record.finishes) {
    const std::string_view reason = FinishReasonOf(finish);
    reasons.add_values()->set_string_value(reason.data(), reason.size());
  }
}

void SetTimes(absl::Time begin, absl::Duration length, Span& span) {
  span.set_start_time_unix_nano(static_cast<uint64_t>(absl::ToUnixNanos(begin)));
  span.set_end_time_unix_nano(static_cast<uint64_t>(absl::ToUnixNanos(begin + length)));
}

Span CallSpan(const CallRecord& record, const CallSummary& summary, const std::string& method,
              absl::Time end) {
  Span span;
  span.set_trace_id(Bytes(record.trace.trace_id));
  span.set_span_id(Bytes(record.trace.span_id));
  span.set_trace_state(record.trace.tracestate);
  span.set_flags(kSampled);
  if (!record.trace.parent_span_id.empty()) {
    span.set_parent_span_id(Bytes(record.trace.parent_span_id));
    span.set_flags(kSampled | kRemoteIsKnown | kRemoteParent);
  }
  span.set_name(Utf8(NameOf(record, method)));
  span.set_kind(Span::SPAN_KIND_SERVER);
  SetTimes(end - summary.total, summary.total, span);
  if (IsServerError(summary.code)) {
    span.mutable_status()->set_code(otlp_trace::Status::STATUS_CODE_ERROR);
    span.mutable_status()->set_message(summary.reason);
  }
  AddCall(record, summary, method, *span.mutable_attributes());
  if (!record.operation.empty()) AddModel(record, *span.mutable_attributes());
  return span;
}

}  // namespace

void AddAttribute(std::string_view key, std::string_view value, Attributes& attributes) {
  *Add(key, attributes).mutable_string_value() = Utf8(value);
}

std::vector<Span> SpansOf(const CallRecord& record, const CallSummary& summary,
                          const std::string& method, absl::Time end) {
  std::vector<Span> spans;
  spans.push_back(CallSpan(record, summary, method, end));
  const absl::Time ended = record.arrival + summary.total;  // on the call's clock
  for (const CallPhase& phase : PhasesOf(record, ended)) {
    Span& span = spans.emplace_back();
    span.set_trace_id(spans.front().trace_id());
    span.set_span_id(Bytes(phase.span_id));
    span.set_trace_state(record.trace.tracestate);
    span.set_parent_span_id(spans.front().span_id());
    span.set_flags(kSampled | kRemoteIsKnown);
    span.set_name(std::string(phase.name));
    span.set_kind(Span::SPAN_KIND_INTERNAL);
    SetTimes(end + (phase.begin - ended), phase.length, span);
  }
  return spans;
}

}  // namespace tlm
