#include "server/rpc/call/pending_call.h"

#include "server/rpc/call/call_log.h"

namespace tlm {

PendingCall::PendingCall(grpc::CallbackServerContext* context, CallRecord record,
                         const RpcContext& rpc)
    : context_(context), rpc_(rpc), record_(std::move(record)) {
  record_.model = rpc.model.model_id;
  record_.deadline =
      AnswerBy(DeadlineFrom(context->raw_deadline(), record_.arrival), record_.arrival);
}

void PendingCall::Run(const std::string& given_id, int64_t bytes,
                      std::function<absl::Status()> submit) {
  self_ = shared_from_this();
  FairPool* const pool = rpc_.texts.For(bytes);
  absl::Status status;
  std::string tenant;
  {
    MutexLock lock(&mutex_);
    status = Begin(given_id);
    if (status.ok() && pool != nullptr) Register();
    tenant = record_.caller.tenant;
  }
  if (!status.ok()) return Submitted(status);
  WatchDeadline();
  if (pool == nullptr) return Read(status, submit);
  absl::StatusOr<FairPool::Undo> turn = pool->Add(
      tenant, bytes,
      [call = self_, submit = std::move(submit)](const absl::Status& t) { call->Read(t, submit); });
  if (!turn.ok()) return Submitted(turn.status());
  MutexLock lock(&mutex_);
  if (!finished_ && !ending_.has_value()) turn_ = *std::move(turn);
}

absl::Status PendingCall::Begin(const std::string& given_id) {
  TLM_RETURN_IF_ERROR(record_.access);
  TLM_ASSIGN_OR_RETURN(record_.request_id, RequestIdOf(given_id, rpc_.model, rpc_.random));
  return Enter();
}

void PendingCall::Register() {
  registration_ = rpc_.calls.Register(record_.caller.tenant, record_.request_id, weak_from_this());
}

void PendingCall::WatchDeadline() {
  absl::Duration left;
  {
    MutexLock lock(&mutex_);
    left = record_.deadline - record_.clock->Now();
  }
  deadline_timer_.Start(left, weak_from_this());
}

void PendingCall::Read(const absl::Status& turn, const std::function<absl::Status()>& submit) {
  {
    MutexLock lock(&mutex_);
    if (finished_) return;
    reading_ = true;
  }
  const absl::Status status = turn.ok() ? submit() : turn;
  {
    MutexLock lock(&mutex_);
    reading_ = false;
  }
  Submitted(status);
}

void PendingCall::Submitted(const absl::Status& status) {
  {
    MutexLock lock(&mutex_);
    if (!status.ok() && !ending_.has_value()) ending_ = status;
  }
  Pump();
}

absl::Status PendingCall::Admit(int64_t priority) {
  TLM_ASSIGN_OR_RETURN(ticket_, rpc_.admission.Admit({.caller = record_.caller,
                                                      .request_id = record_.request_id,
                                                      .tokens = record_.prompt_tokens,
                                                      .deadline = record_.deadline,
                                                      .priority = priority}));
  Register();
  return absl::OkStatus();
}

absl::Status PendingCall::Submit(Request&& request) {
  request.id = record_.request_id;
  request.tenant = record_.caller.tenant;
  request.deadline = record_.deadline;
  // Taken before the engine's own clock starts, so that no phase ends after the call.
  const absl::Time queued = record_.clock->Now();
  TLM_RETURN_IF_ERROR(rpc_.engine.Submit(std::move(request)));
  if (!record_.admitted) MarkAdmitted(record_, queued);
  return absl::OkStatus();
}

void PendingCall::NoteStart(const StreamStart& start) {
  record_.started = true;
  record_.queue_time = start.queue_time;
  record_.cached_prompt_tokens = start.cached_prompt_tokens;
}

bool PendingCall::Cut(absl::FunctionRef<absl::Status(const CallRecord&)> status_of) {
  {
    MutexLock lock(&mutex_);
    if (finished_ || ending_.has_value()) return false;
    ending_ = status_of(record_);
    Abandon();
    turn_ = FairPool::Undo();
    // Frees the id now: a stuck write may keep the call for long.
    FreeId();
  }
  Pump();
  return true;
}

void PendingCall::SetEnd(const absl::Status& status) {
  finished_ = true;
  if (request_ != nullptr) FreeMessage(*request_);
  // Charged before the client can learn of the end, so that its next request finds these tokens
  // counted.
  if (record_.admitted) {
    ticket_.ChargeOutput(record_.completion_tokens);
  } else {
    ticket_.Refund();
  }
  FreeId();
  record_.status = status;
  if (record_.access.ok()) context_->AddTrailingMetadata(kLoadReportKey, rpc_.load.Serialized());
  if (status.ok()) return;
  Abandon();
  AddUsageTrailers(record_, *context_);
}

void PendingCall::FreeId() {
  registration_ = CallRegistry::Registration();
  ticket_.FreeRequestId();
}

void PendingCall::Done() {
  {
    MutexLock lock(&mutex_);
    ticket_ = Admission::Ticket();
    EndCall(record_);
  }
  // Destroys this object, unless a wake-up still holds it.
  const std::shared_ptr<PendingCall> last = std::move(self_);
}

}  // namespace tlm
