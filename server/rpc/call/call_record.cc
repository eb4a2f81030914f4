#include "server/rpc/call/call_record.h"

#include "model/base/error_details.h"
#include "model/base/errors.h"
#include "server/rpc/call/call_log.h"

namespace tlm {

namespace {

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

void MarkAdmitted(CallRecord& record) {
  record.admitted = true;
  record.queued = record.clock->Now();
  record.metrics->CountAdmitted(record.rpc, record.caller.tenant);
}

void MarkFirstToken(CallRecord& record) {
  record.first_token = record.clock->Now();
  record.metrics->RecordFirstToken(*record.first_token - record.arrival);
}

void EndCall(const CallRecord& record) {
  const CallSummary summary = SummaryOf(record);
  if (summary.admitted && !record.admitted) {
    record.metrics->CountAdmitted(record.rpc, record.caller.tenant);
  }
  record.metrics->CountEnd(summary);
  LogCall(record, summary);
}

v1::Usage UsageOf(const CallRecord& record) {
  v1::Usage usage;
  usage.set_prompt_tokens(static_cast<uint64_t>(record.prompt_tokens));
  usage.set_cached_prompt_tokens(static_cast<uint64_t>(record.cached_prompt_tokens));
  usage.set_completion_tokens(static_cast<uint64_t>(record.completion_tokens));
  return usage;
}

absl::Status ExpiredStatus(const CallRecord& record) {
  return WithReason(DeadlineExceeded("the deadline passed while the request was {}",
                                     record.started ? "running" : "queued"),
                    record.started ? "EXPIRED_RUNNING" : "EXPIRED_IN_QUEUE");
}

absl::Status CancelledStatus(const CallRecord& record) {
  if (record.clock->Now() >= record.deadline) return ExpiredStatus(record);
  return Cancelled("the client cancelled the call");
}

void AddUsageTrailers(const CallRecord& record, grpc::ServerContextBase& context) {
  if (record.prompt_tokens == 0) return;
  context.AddTrailingMetadata("tlm-usage-bin", UsageOf(record).SerializeAsString());
  context.AddTrailingMetadata("tlm-prompt-tokens", std::to_string(record.prompt_tokens));
  context.AddTrailingMetadata("tlm-completion-tokens", std::to_string(record.completion_tokens));
}

}  // namespace tlm
