// What unary calls have in common that wait for the engine.
#ifndef TLM_SERVER_RPC_UNARY_CALL_H_
#define TLM_SERVER_RPC_UNARY_CALL_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "model/base/mutex.h"
#include "server/admission/admission.h"
#include "server/batching/token_stream.h"
#include "server/rpc/call_record.h"
#include "server/rpc/call_registry.h"
#include "server/rpc/deadline_timer.h"
#include "server/rpc/proto_time.h"
#include "server/rpc/status_mapping.h"

namespace tlm {

// Lives as a StreamingCall does, with one message at the end instead of writes between. `mutex_`
// guards the state of the derived class too.
class UnaryCall : public grpc::ServerUnaryReactor,
                  public StreamListener,
                  public AbortableCall,
                  public std::enable_shared_from_this<UnaryCall> {
 public:
  // The delivery thread.
  void OnStreamReady() override;
  // The answer has to leave now to be with the client in time.
  void OnDeadline() { FinishAs(ExpiredStatus); }
  bool Abort(const absl::Status& status) override { return FinishOnce(status); }

 protected:
  UnaryCall(grpc::CallbackServerContext* context, CallRecord record)
      : context_(context), record_(std::move(record)) {
    record_.deadline =
        AnswerBy(DeadlineFrom(context->raw_deadline(), record_.arrival), record_.arrival);
  }

  // Begins the call's life, then `submit`s its work; what that returns ends the call unless it is
  // OK.
  template <typename Submit>
  void Run(Submit submit);
  // Takes in what has arrived; how the call ends, once it does. With OK the response is complete.
  virtual std::optional<absl::Status> Collect() TLM_REQUIRES(mutex_) = 0;
  // Lets go of the engine's work. Idempotent.
  virtual void Abandon() TLM_REQUIRES(mutex_) = 0;
  // Whether the caller's credentials are enough.
  absl::Status Access() {
    MutexLock lock(&mutex_);
    return record_.access;
  }
  // Who makes the call; never changes.
  const Principal& Caller() {
    MutexLock lock(&mutex_);
    return record_.caller;
  }
  // The call is admitted: from now on until its end `calls` can abort it.
  void RegisterIn(CallRegistry& calls) TLM_REQUIRES(mutex_) {
    registration_ = calls.Register(record_.caller.tenant, record_.request_id, weak_from_this());
  }

  grpc::CallbackServerContext* const context_;
  Mutex mutex_;
  CallRecord record_ TLM_GUARDED_BY(mutex_);
  // Set by the derived class once the call is admitted.
  Admission::Ticket ticket_ TLM_GUARDED_BY(mutex_);

 private:
  void OnCancel() override { FinishAs(CancelledStatus); }
  void OnDone() override;
  void FinishAs(absl::Status (*status_of)(const CallRecord&));
  // False when the call had ended before.
  bool FinishOnce(const absl::Status& status);
  void WatchDeadline();

  // Shared with itself until OnDone: gRPC 1.51 keeps a plain pointer.
  std::shared_ptr<UnaryCall> self_;
  CallRegistry::Registration registration_ TLM_GUARDED_BY(mutex_);
  bool finished_ TLM_GUARDED_BY(mutex_) = false;
  DeadlineTimer deadline_timer_;
};

template <typename Submit>
void UnaryCall::Run(Submit submit) {
  self_ = shared_from_this();
  const absl::Status status = submit();
  if (status.ok()) {
    WatchDeadline();
  } else {
    FinishOnce(status);
  }
}

}  // namespace tlm

#endif  // TLM_SERVER_RPC_UNARY_CALL_H_
