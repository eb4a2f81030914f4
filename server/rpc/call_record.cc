#include "server/rpc/call_record.h"

#include <spdlog/spdlog.h>

#include "model/base/error_details.h"
#include "model/base/errors.h"
#include "server/observe/log.h"

namespace tlm {

void LogCall(const CallRecord& record) {
  const absl::Duration total = record.clock->Now() - record.arrival;
  const absl::StatusCode code = record.status.code();
  spdlog::info(
      "request rpc={} id={} status={} prompt_tokens={} completion_tokens={} queue_ms={:.1f} "
      "total_ms={:.1f}",
      record.rpc, LogQuoted(record.request_id), absl::StatusCodeToString(code),
      record.prompt_tokens, record.completion_tokens, absl::ToDoubleMilliseconds(record.queue_time),
      absl::ToDoubleMilliseconds(total));
  if (code == absl::StatusCode::kInternal || code == absl::StatusCode::kDataLoss) {
    const absl::string_view message = record.status.message();
    spdlog::error("request id={} failed: {}", LogQuoted(record.request_id),
                  std::string_view(message.data(), message.size()));
  }
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
