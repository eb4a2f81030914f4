// What every server-streaming call has in common: one write at a time, an end that comes once, and
// a lifetime that covers both gRPC and the engine's wake-ups.
#ifndef TLM_SERVER_RPC_STREAMING_CALL_H_
#define TLM_SERVER_RPC_STREAMING_CALL_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "model/base/mutex.h"
#include "server/batching/token_stream.h"
#include "server/rpc/call_record.h"
#include "server/rpc/proto_time.h"
#include "server/rpc/status_mapping.h"

namespace tlm {

// A reactor that owns everything of one call. Life:
//
//   Start() -> [wake-up or write done -> Next() -> write]* -> Finish -> OnDone -> gone
//
// gRPC holds it by `self_` until OnDone; the mailbox's wake-up holds it while it runs. Threads: a
// gRPC thread makes it and reports writes, cancellation and the end; the delivery thread wakes it.
// `mutex_` guards the state of the derived class too; it is not held while gRPC is called, and of
// the engine only calls that do not block are made under it.
template <typename Response>
class StreamingCall : public grpc::ServerWriteReactor<Response>,
                      public StreamListener,
                      public std::enable_shared_from_this<StreamingCall<Response>> {
 public:
  // Something arrived for this call.
  void OnStreamReady() override { Pump(); }

 protected:
  StreamingCall(grpc::CallbackServerContext* context, CallRecord record)
      : context_(context), record_(std::move(record)) {}

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
  // Takes in what arrived; asked at every wake-up, also while a write is in flight.
  virtual void Collect() TLM_REQUIRES(mutex_) = 0;
  // Lets go of the engine's work: the client is gone or the call failed. Idempotent.
  virtual void Abandon() TLM_REQUIRES(mutex_) = 0;
  // The call is over for gRPC: give back what others wait for.
  virtual void Release() TLM_REQUIRES(mutex_) = 0;

  // Begins the call's life; before anything that can end it.
  void KeepAlive() { self_ = this->shared_from_this(); }
  // Ends the call before anything was written.
  void FinishEarly(const absl::Status& status);
  void Pump();

  grpc::CallbackServerContext* const context_;
  Mutex mutex_;
  CallRecord record_ TLM_GUARDED_BY(mutex_);

 private:
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  void SetEnd(const absl::Status& status) TLM_REQUIRES(mutex_);

  // Shared with itself until OnDone: gRPC 1.51 keeps a plain pointer.
  std::shared_ptr<StreamingCall> self_;
  // Belongs to gRPC while a write is in flight, to Next() otherwise.
  Response message_;
  bool writing_ TLM_GUARDED_BY(mutex_) = false;
  bool cancelled_ TLM_GUARDED_BY(mutex_) = false;
  bool finished_ TLM_GUARDED_BY(mutex_) = false;
};

template <typename Response>
void StreamingCall<Response>::Pump() {
  NextStep step;
  {
    MutexLock lock(&mutex_);
    if (finished_) return;
    if (!cancelled_) Collect();
    if (writing_) return;
    if (cancelled_) {
      step = NextStep::End(CancelledStatus(record_, DeadlineFrom(context_->deadline())));
    } else {
      message_.Clear();
      step = Next(message_);
    }
    writing_ = step.kind == NextStep::Kind::kMessage;
    if (step.kind == NextStep::Kind::kEnd) SetEnd(step.status);
  }
  // Outside the lock, though nobody else can get here: writing_ or finished_ keeps them out.
  if (step.kind == NextStep::Kind::kMessage) this->StartWrite(&message_);
  if (step.kind == NextStep::Kind::kEnd) this->Finish(ToGrpcStatus(step.status));
}

template <typename Response>
void StreamingCall<Response>::FinishEarly(const absl::Status& status) {
  {
    MutexLock lock(&mutex_);
    SetEnd(status);
  }
  this->Finish(ToGrpcStatus(status));
}

template <typename Response>
void StreamingCall<Response>::SetEnd(const absl::Status& status) {
  finished_ = true;
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
    if (!ok) cancelled_ = true;
  }
  Pump();
}

template <typename Response>
void StreamingCall<Response>::OnCancel() {
  {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    Abandon();
  }
  Pump();
}

template <typename Response>
void StreamingCall<Response>::OnDone() {
  {
    MutexLock lock(&mutex_);
    Release();
    LogCall(record_);
  }
  // The end of this object, unless a wake-up still holds it.
  const std::shared_ptr<StreamingCall> last = std::move(self_);
}

}  // namespace tlm

#endif  // TLM_SERVER_RPC_STREAMING_CALL_H_
