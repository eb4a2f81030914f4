#include "server/rpc/call/call_record.h"

#include "model/base/error_details.h"
#include "model/base/errors.h"

namespace tlm {

void MarkAdmitted(CallRecord& record, absl::Time queued) {
  record.admitted = true;
  record.queued = queued;
  record.metrics->CountAdmitted(record.rpc, record.caller.tenant);
}

void MarkFirstToken(CallRecord& record) {
  record.first_token = record.clock->Now();
  record.metrics->RecordFirstToken(*record.first_token - record.arrival);
}

v1::Usage UsageOf(const CallRecord& record) {
  v1::Usage usage;
  usage.set_prompt_tokens(static_cast<uint64_t>(record.prompt_tokens));
  usage.set_cached_prompt_tokens(static_cast<uint64_t>(record.cached_prompt_tokens));
  usage.set_completion_tokens(static_cast<uint64_t>(record.completion_tokens));
  if (record.regions.has_value()) {
    usage.set_reasoning_tokens(static_cast<uint64_t>(record.regions->reasoning_tokens));
  }
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
