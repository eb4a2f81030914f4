// What unary calls have in common that wait: for the engine, or for a thread to read their request.
#ifndef TLM_SERVER_RPC_CALL_UNARY_CALL_H_
#define TLM_SERVER_RPC_CALL_UNARY_CALL_H_

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

  // As StreamingCall's.
  void Run(const RpcContext& rpc, const grpc::ByteBuffer& request,
           std::function<absl::Status()> submit);
  // The same of a request that gRPC has parsed: its id, and how many bytes it has.
  void Run(const RpcContext& rpc, const std::string& given_id, int64_t bytes,
           std::function<absl::Status()> submit);
  // Whether the call may come in, before its request is read.
  virtual absl::Status Enter(const RpcContext& rpc) TLM_REQUIRES(mutex_) {
    return tlm::Enter(rpc, record_.caller);
  }
  // Takes in what has arrived; how the call ends, once it does. With OK the response is complete.
  virtual std::optional<absl::Status> Collect() TLM_REQUIRES(mutex_) = 0;
  // Lets go of the engine's work. Idempotent.
  virtual void Abandon() TLM_REQUIRES(mutex_) = 0;
  // From now on until its end `calls` can abort it.
  void RegisterIn(CallRegistry& calls) TLM_REQUIRES(mutex_) {
    registration_ = calls.Register(record_.caller.tenant, record_.request_id, weak_from_this());
  }

  // The call has been ended while its request is being read: what it still does is for nothing.
  bool IsEnding() {
    MutexLock lock(&mutex_);
    return ending_.has_value();
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
  // The call has its id now, and is let in.
  absl::Status Begin(const RpcContext& rpc, const std::string& given_id) TLM_REQUIRES(mutex_);
  void Read(const absl::Status& turn, const std::function<absl::Status()>& submit);
  // `submit` has returned.
  void Submitted(const absl::Status& status);

  // Shared with itself until OnDone: gRPC 1.51 keeps a plain pointer.
  std::shared_ptr<UnaryCall> self_;
  CallRegistry::Registration registration_ TLM_GUARDED_BY(mutex_);
  bool finished_ TLM_GUARDED_BY(mutex_) = false;
  const grpc::ByteBuffer* request_ TLM_GUARDED_BY(mutex_) = nullptr;  // null: gRPC has parsed it
  bool reading_ TLM_GUARDED_BY(mutex_) = false;                       // `submit` has the request
  FairPool::Undo turn_ TLM_GUARDED_BY(mutex_);  // while the request waits to be read
  // How the call ends once nobody reads the request.
  std::optional<absl::Status> ending_ TLM_GUARDED_BY(mutex_);
  DeadlineTimer deadline_timer_;
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CALL_UNARY_CALL_H_
