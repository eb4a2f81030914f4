// Implements the common part of calls that wait: for a thread to parse their request, or for the
// engine.
#ifndef TLM_SERVER_RPC_CALL_PENDING_CALL_H_
#define TLM_SERVER_RPC_CALL_PENDING_CALL_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "model/base/errors.h"
#include "model/base/mutex.h"
#include "server/admission/admission.h"
#include "server/admission/fair_pool.h"
#include "server/batching/request.h"
#include "server/batching/token_stream.h"
#include "server/rpc/call/call_record.h"
#include "server/rpc/call/call_registry.h"
#include "server/rpc/call/deadline_timer.h"
#include "server/rpc/call/raw_message.h"
#include "server/rpc/call/rpc_context.h"

namespace tlm {

// The part of a gRPC reactor that does not depend on how the call is answered; StreamingCall and
// UnaryCall add the rest. Life:
//
//   Run() -> enters -> its request is read -> Admit() -> Submit() -> [wake-up -> Pump()]* -> OnDone
//
// `self_` keeps the call alive until OnDone; a wake-up keeps it alive while it runs. Threads: a
// gRPC thread makes the call and reports cancellation, the deadline and the end. A pool thread
// reads a long request; the call does not end during that. The delivery thread wakes the call.
// `mutex_` also guards the state of the derived classes. It is not held during calls into gRPC;
// under it, only engine functions that do not block are called.
class PendingCall : public StreamListener,
                    public AbortableCall,
                    public std::enable_shared_from_this<PendingCall> {
 public:
  // Called when the token stream has results.
  void OnStreamReady() override { Pump(); }
  // Called when the answer must leave now to reach the client in time.
  void OnDeadline() { Cut(ExpiredStatus); }
  bool Abort(const absl::Status& status) override {
    return Cut([&status](const CallRecord&) { return status; });
  }

 protected:
  // `rpc` outlives the call.
  PendingCall(grpc::CallbackServerContext* context, CallRecord record, const RpcContext& rpc);

  // Starts the call: asks admission, then calls `submit` with the parsed request, here or, for a
  // long request, on a thread of rpc.texts. A status of `submit` other than OK ends the call.
  // `request` outlives the call; its text field `id_field` holds the request id.
  template <typename Message>
  void Run(const grpc::ByteBuffer& request, std::function<absl::Status(Message&)> submit,
           int id_field = kRequestIdField) {
    {
      MutexLock lock(&mutex_);
      request_ = &request;
    }
    Run(TextIn(request, id_field), static_cast<int64_t>(request.Length()),
        [&request, submit = std::move(submit)]() -> absl::Status {
          Message message;
          TLM_RETURN_IF_ERROR(TakeMessage(request, message));
          return submit(message);
        });
  }
  // Asks admission, before the request is parsed.
  virtual absl::Status Enter() TLM_REQUIRES(mutex_) { return rpc_.admission.Enter(record_.caller); }
  // Continues the call: collects results, sends what is due, ends it.
  virtual void Pump() = 0;
  // Cancels the engine's work: the client is gone or the call failed. Idempotent.
  virtual void Abandon() TLM_REQUIRES(mutex_) = 0;

  // Admits the call once record_.prompt_tokens is known; from now on it can be aborted.
  absl::Status Admit(int64_t priority = 0) TLM_REQUIRES(mutex_);
  // Queues work for an admitted call, as Engine::Submit; fills in tenant and deadline.
  absl::Status Submit(Request&& request) TLM_REQUIRES(mutex_);
  // Finishes the work of a `submit` that returned OK before it had submitted anything: `status`
  // takes the place of the status of `submit`. Called without the lock.
  void Submitted(const absl::Status& status);
  // Records that the engine has started the call's first request.
  void NoteStart(const StreamStart& start) TLM_REQUIRES(mutex_);

  // Cancels the engine's work and ends the call with status_of(record_) as soon as no write and no
  // parsing is in progress, unless it has ended or is about to end; returns whether this call ended
  // it.
  bool Cut(absl::FunctionRef<absl::Status(const CallRecord&)> status_of);
  // Ends the call; the derived class passes the status to gRPC. Called once, not while the request
  // is parsed.
  void SetEnd(const absl::Status& status) TLM_REQUIRES(mutex_);
  // gRPC is done with the call: records its end and drops `self_`.
  void Done();

  // Returns true when the call was ended while its request is parsed: further work is useless.
  bool IsEnding() {
    MutexLock lock(&mutex_);
    return ending_.has_value();
  }

  grpc::CallbackServerContext* const context_;
  const RpcContext& rpc_;
  Mutex mutex_;
  CallRecord record_ TLM_GUARDED_BY(mutex_);
  Admission::Ticket ticket_ TLM_GUARDED_BY(mutex_);
  bool reading_ TLM_GUARDED_BY(mutex_) = false;  // parsing the request; delays the end
  // The status with which the call ends, even when results are left to send.
  std::optional<absl::Status> ending_ TLM_GUARDED_BY(mutex_);
  bool finished_ TLM_GUARDED_BY(mutex_) = false;

 private:
  // Asks admission with `given_id` and the size of the request, then calls `submit`.
  void Run(const std::string& given_id, int64_t bytes, std::function<absl::Status()> submit);
  // Sets the request id and asks admission.
  absl::Status Begin(const std::string& given_id) TLM_REQUIRES(mutex_);
  // Makes the call abortable until its end.
  void Register() TLM_REQUIRES(mutex_);
  // Starts the deadline timer; without it gRPC's cancellation ends the call.
  void WatchDeadline();
  void Read(const absl::Status& turn, const std::function<absl::Status()>& submit);
  // Frees the id: a client may reuse it as soon as it receives the status.
  void FreeId() TLM_REQUIRES(mutex_);

  // Owns itself until OnDone, because gRPC 1.51 keeps a plain pointer.
  std::shared_ptr<PendingCall> self_;
  const grpc::ByteBuffer* request_ TLM_GUARDED_BY(mutex_) = nullptr;  // set by Run
  FairPool::Undo turn_ TLM_GUARDED_BY(mutex_);  // while the request waits to be read
  CallRegistry::Registration registration_ TLM_GUARDED_BY(mutex_);
  DeadlineTimer deadline_timer_;
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CALL_PENDING_CALL_H_
