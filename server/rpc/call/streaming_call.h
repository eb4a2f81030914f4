// What every server-streaming call has in common: one write at a time, an end that comes once, and
// a lifetime that covers both gRPC and the engine's wake-ups.
#ifndef TLM_SERVER_RPC_CALL_STREAMING_CALL_H_
#define TLM_SERVER_RPC_CALL_STREAMING_CALL_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "model/base/mutex.h"
#include "server/admission/admission.h"
#include "server/batching/token_stream.h"
#include "server/rpc/call/call_record.h"
#include "server/rpc/call/call_registry.h"
#include "server/rpc/call/deadline_timer.h"
#include "server/rpc/call/raw_message.h"
#include "server/rpc/call/rpc_context.h"
#include "server/rpc/call/status_mapping.h"
#include "server/rpc/convert/proto_time.h"

namespace tlm {

// A reactor that owns everything of one call. Life:
//
//   Run() -> [wake-up or write done -> Next() -> write]* -> Finish -> OnDone -> gone
//
// gRPC holds it by `self_` until OnDone; the mailbox's wake-up holds it while it runs. Threads: a
// gRPC thread makes it and reports writes, cancellation, the deadline and the end; a thread of a
// pool reads its request when that is long, which no end overtakes; the delivery thread wakes it. A
// reader that does not keep up leaves a write in flight; what arrives meanwhile is taken in until
// the call IsBehind(), then stays in the mailbox, and the engine waits when that is full. `mutex_`
// guards the state of the derived class too; it is not held while gRPC is called, and of the engine
// only calls that do not block are made under it.
template <typename Response>
class StreamingCall : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                      public StreamListener,
                      public AbortableCall,
                      public std::enable_shared_from_this<StreamingCall<Response>> {
 public:
  // Something arrived for this call.
  void OnStreamReady() override { Pump(); }
  // The answer has to leave now to be with the client in time.
  void OnDeadline() { Cut(ExpiredStatus); }
  bool Abort(const absl::Status& status) override {
    return Cut([&status](const CallRecord&) { return status; });
  }

 protected:
  StreamingCall(grpc::CallbackServerContext* context, CallRecord record)
      : context_(context), record_(std::move(record)) {
    record_.deadline =
        AnswerBy(DeadlineFrom(context->raw_deadline(), record_.arrival), record_.arrival);
  }

  // What comes next: a message written to `message`, nothing yet, or the end with a status.
  struct NextStep {
    enum class Kind { kNothing, kMessage, kEnd } kind = Kind::kNothing;
    absl::Status status;

    static NextStep Nothing() { return {}; }
    static NextStep Message() { return {Kind::kMessage, absl::OkStatus()}; }
    static NextStep End(absl::Status status) { return {Kind::kEnd, std::move(status)}; }
  };

  // Asked only while no write is in flight.
  virtual NextStep Next(Response& message) TLM_REQUIRES(mutex_) = 0;
  // Takes in what arrived; asked at every wake-up, but while a write is in flight only until
  // IsBehind().
  virtual void Collect() TLM_REQUIRES(mutex_) = 0;
  // So much waits to be written that no more should be taken in.
  virtual bool IsBehind() const TLM_REQUIRES(mutex_) = 0;
  // Lets go of the engine's work: the client is gone or the call failed. Idempotent.
  virtual void Abandon() TLM_REQUIRES(mutex_) = 0;
  // Begins the call's life: lets it in, then `submit`s its work, which reads the request, here or,
  // when its bytes are many, on a thread of rpc.texts once it is its turn. What `submit` returns
  // ends the call unless it is OK. The request outlives the call.
  void Run(const RpcContext& rpc, const grpc::ByteBuffer& request,
           std::function<absl::Status()> submit);
  // From now on until its end `calls` can abort it.
  void RegisterIn(CallRegistry& calls) TLM_REQUIRES(mutex_) {
    registration_ =
        calls.Register(record_.caller.tenant, record_.request_id, this->weak_from_this());
  }
  void Pump();

  grpc::CallbackServerContext* const context_;
  Mutex mutex_;
  CallRecord record_ TLM_GUARDED_BY(mutex_);
  // Set by the derived class once the call is admitted.
  Admission::Ticket ticket_ TLM_GUARDED_BY(mutex_);

 private:
  void OnWriteDone(bool ok) override;
  void OnCancel() override { Cut(CancelledStatus); }
  void OnDone() override;
  // From now on the deadline ends the call; without this it does when gRPC cancels it.
  void WatchDeadline();
  // The call has its id now, and is let in.
  absl::Status Begin(const RpcContext& rpc, const std::string& given_id) TLM_REQUIRES(mutex_);
  void Read(const absl::Status& turn, const std::function<absl::Status()>& submit);
  // `submit` has returned.
  void Submitted(const absl::Status& status);
  template <typename StatusOf>
  bool Cut(StatusOf status_of);
  void SetEnd(const absl::Status& status) TLM_REQUIRES(mutex_);
  // Whoever has heard of the end may use the id again at once.
  void FreeName() TLM_REQUIRES(mutex_) {
    registration_ = CallRegistry::Registration();
    ticket_.FreeRequestId();
  }

  // Shared with itself until OnDone: gRPC 1.51 keeps a plain pointer.
  std::shared_ptr<StreamingCall> self_;
  // Next() fills it in, and then it is written as bytes, which belong to gRPC meanwhile.
  Response message_;
  grpc::ByteBuffer written_;
  bool writing_ TLM_GUARDED_BY(mutex_) = false;
  const grpc::ByteBuffer* request_ TLM_GUARDED_BY(mutex_) = nullptr;
  bool reading_ TLM_GUARDED_BY(mutex_) = false;  // `submit` has the request
  FairPool::Undo turn_ TLM_GUARDED_BY(mutex_);   // while the request waits to be read
  // How the call ends as soon as no write is in flight and nobody reads the request, whatever there
  // would be to send.
  std::optional<absl::Status> cut_ TLM_GUARDED_BY(mutex_);
  CallRegistry::Registration registration_ TLM_GUARDED_BY(mutex_);
  bool finished_ TLM_GUARDED_BY(mutex_) = false;
  DeadlineTimer deadline_timer_;
};

template <typename Response>
void StreamingCall<Response>::Pump() {
  NextStep step;
  {
    MutexLock lock(&mutex_);
    if (finished_) return;
    if (!cut_.has_value() && !(writing_ && IsBehind())) Collect();
    if (writing_ || reading_) return;
    if (cut_.has_value()) {
      step = NextStep::End(*cut_);
    } else {
      message_.Clear();
      step = Next(message_);
    }
    writing_ = step.kind == NextStep::Kind::kMessage;
    if (writing_ && !record_.first_write.has_value()) record_.first_write = record_.clock->Now();
    if (step.kind == NextStep::Kind::kEnd) SetEnd(step.status);
  }
  // Outside the lock, though nobody else can get here: writing_ or finished_ keeps them out.
  if (step.kind == NextStep::Kind::kMessage) {
    PutMessage(message_, written_);
    this->StartWrite(&written_);
  }
  if (step.kind == NextStep::Kind::kEnd) this->Finish(ToGrpcStatus(step.status));
}

template <typename Response>
void StreamingCall<Response>::Run(const RpcContext& rpc, const grpc::ByteBuffer& request,
                                  std::function<absl::Status()> submit) {
  self_ = this->shared_from_this();
  const auto bytes = static_cast<int64_t>(request.Length());
  FairPool* const pool = rpc.texts.For(bytes);
  absl::Status status;
  std::string tenant;
  {
    MutexLock lock(&mutex_);
    request_ = &request;
    status = Begin(rpc, RequestIdIn(request));
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
  if (!cut_.has_value()) turn_ = *std::move(turn);
}

template <typename Response>
absl::Status StreamingCall<Response>::Begin(const RpcContext& rpc, const std::string& given_id) {
  TLM_RETURN_IF_ERROR(record_.access);
  TLM_ASSIGN_OR_RETURN(record_.request_id, RequestIdOf(given_id, rpc.model, rpc.random));
  return Enter(rpc, record_.caller);
}

template <typename Response>
void StreamingCall<Response>::Read(const absl::Status& turn,
                                   const std::function<absl::Status()>& submit) {
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

template <typename Response>
void StreamingCall<Response>::Submitted(const absl::Status& status) {
  {
    MutexLock lock(&mutex_);
    if (!status.ok() && !cut_.has_value()) cut_ = status;
  }
  Pump();
}

template <typename Response>
void StreamingCall<Response>::WatchDeadline() {
  absl::Duration left;
  {
    MutexLock lock(&mutex_);
    left = record_.deadline - record_.clock->Now();
  }
  deadline_timer_.Start(left, this->weak_from_this());
}

// Lets go of the engine's work and ends the call with status_of(record_), unless it has ended or is
// about to; true when this is what ends it.
template <typename Response>
template <typename StatusOf>
bool StreamingCall<Response>::Cut(StatusOf status_of) {
  {
    MutexLock lock(&mutex_);
    if (finished_ || cut_.has_value()) return false;
    cut_ = status_of(record_);
    Abandon();
    turn_ = FairPool::Undo();
    // A write that is stuck may keep the call for long.
    FreeName();
  }
  Pump();
  return true;
}

template <typename Response>
void StreamingCall<Response>::SetEnd(const absl::Status& status) {
  finished_ = true;
  if (request_ != nullptr) FreeMessage(*request_);
  Settle(ticket_, record_);
  FreeName();
  record_.status = status;
  if (status.ok()) return;
  Abandon();
  AddUsageTrailers(record_, *context_);
}

template <typename Response>
void StreamingCall<Response>::OnWriteDone(bool ok) {
  {
    MutexLock lock(&mutex_);
    writing_ = false;
    // The stream is broken; OnCancel comes or came.
    if (!ok && !cut_.has_value()) cut_ = CancelledStatus(record_);
  }
  Pump();
}

template <typename Response>
void StreamingCall<Response>::OnDone() {
  {
    MutexLock lock(&mutex_);
    ticket_ = Admission::Ticket();
    EndCall(record_);
  }
  // The end of this object, unless a wake-up still holds it.
  const std::shared_ptr<StreamingCall> last = std::move(self_);
}

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CALL_STREAMING_CALL_H_
