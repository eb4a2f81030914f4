#include "server/rpc/call/unary_call.h"

namespace tlm {

void UnaryCall::Run(const RpcContext& rpc, const grpc::ByteBuffer& request,
                    std::function<absl::Status()> submit) {
  {
    MutexLock lock(&mutex_);
    request_ = &request;
  }
  Run(rpc, RequestIdIn(request), static_cast<int64_t>(request.Length()), std::move(submit));
}

void UnaryCall::Run(const RpcContext& rpc, const std::string& given_id, int64_t bytes,
                    std::function<absl::Status()> submit) {
  self_ = shared_from_this();
  FairPool* const pool = rpc.texts.For(bytes);
  absl::Status status;
  std::string tenant;
  {
    MutexLock lock(&mutex_);
    status = Begin(rpc, given_id);
    if (status.ok() && pool != nullptr) RegisterIn(rpc.calls);
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
  if (!finished_) turn_ = *std::move(turn);
}

absl::Status UnaryCall::Begin(const RpcContext& rpc, const std::string& given_id) {
  TLM_RETURN_IF_ERROR(record_.access);
  TLM_ASSIGN_OR_RETURN(record_.request_id, RequestIdOf(given_id, rpc.model, rpc.random));
  return Enter(rpc);
}

void UnaryCall::Read(const absl::Status& turn, const std::function<absl::Status()>& submit) {
  {
    MutexLock lock(&mutex_);
    if (finished_) return;
    reading_ = true;
  }
  const absl::Status status = turn.ok() ? submit() : turn;
  std::optional<absl::Status> ending;
  {
    MutexLock lock(&mutex_);
    reading_ = false;
    ending.swap(ending_);
  }
  Submitted(ending.value_or(status));
}

void UnaryCall::Submitted(const absl::Status& status) {
  if (status.ok()) {
    OnStreamReady();
  } else {
    FinishOnce(status);
  }
}

void UnaryCall::OnStreamReady() {
  std::optional<absl::Status> end;
  {
    MutexLock lock(&mutex_);
    if (!finished_ && !reading_) end = Collect();
  }
  if (end.has_value()) FinishOnce(*end);
}

void UnaryCall::WatchDeadline() {
  absl::Duration left;
  {
    MutexLock lock(&mutex_);
    left = record_.deadline - record_.clock->Now();
  }
  deadline_timer_.Start(left, weak_from_this());
}

void UnaryCall::FinishAs(absl::Status (*status_of)(const CallRecord&)) {
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    status = status_of(record_);
  }
  FinishOnce(status);
}

bool UnaryCall::FinishOnce(const absl::Status& status) {
  {
    MutexLock lock(&mutex_);
    if (finished_ || ending_.has_value()) return false;
    if (reading_) {
      ending_ = status;
      return true;
    }
    finished_ = true;
    turn_ = FairPool::Undo();
    if (request_ != nullptr) FreeMessage(*request_);
    Settle(ticket_, record_);
    // Whoever has heard of the end may use the id again at once.
    registration_ = CallRegistry::Registration();
    ticket_.FreeRequestId();
    record_.status = status;
    Abandon();
    if (!status.ok()) AddUsageTrailers(record_, *context_);
  }
  Finish(ToGrpcStatus(status));
  return true;
}

void UnaryCall::OnDone() {
  {
    MutexLock lock(&mutex_);
    ticket_ = Admission::Ticket();
    EndCall(record_);
  }
  // The end of this object, unless a wake-up still holds it.
  const std::shared_ptr<UnaryCall> last = std::move(self_);
}

}  // namespace tlm
