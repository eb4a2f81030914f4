#include "server/rpc/call/call_record.h"

#include <fmt/format.h>

#include <utility>

#include "model/base/errors.h"
#include "server/observe/refusals.h"

namespace tlm {
namespace {

class Phases {
 public:
  explicit Phases(const CallRecord& record) : record_(record) {}

  void Add(std::string_view name, absl::Time begin, absl::Duration length) {
    phases_.push_back({name, NextId(), begin, length});
  }
  std::vector<CallPhase> Take() { return std::move(phases_); }

 private:
  // Never the call's own id, never all zero: adds an odd number to the 64 bits a few times.
  std::string NextId() {
    uint64_t id = 0;
    for (const char c : record_.trace.span_id) {
      id = id << 4 | static_cast<uint64_t>(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    id += 0x9e3779b97f4a7c15u * (phases_.size() + 1);
    return fmt::format("{:016x}", id == 0 ? 1 : id);
  }

  const CallRecord& record_;
  std::vector<CallPhase> phases_;
};

}  // namespace

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
  return Expired(record.started ? RequestStage::kRunning : RequestStage::kQueued);
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

std::vector<CallPhase> PhasesOf(const CallRecord& record, absl::Time end) {
  Phases phases(record);
  if (!record.admitted) return phases.Take();
  const absl::Duration queue = record.started ? record.queue_time : end - record.queued;
  phases.Add("queue", record.queued, queue);
  absl::Time begin = record.queued + queue;
  if (record.prefill_time.has_value() && record.decode_time.has_value()) {
    phases.Add("prefill", begin, *record.prefill_time);
    begin += *record.prefill_time;
    phases.Add("decode", begin, *record.decode_time);
  } else if (record.first_token.has_value()) {
    phases.Add("prefill", begin, *record.first_token - begin);
    phases.Add("decode", *record.first_token, end - *record.first_token);
  } else if (record.started) {
    phases.Add("compute", begin, end - begin);
  }
  if (record.first_write.has_value()) {
    phases.Add("write", *record.first_write, end - *record.first_write);
  }
  return phases.Take();
}

}  // namespace tlm
