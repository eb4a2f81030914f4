// What calls have in common that are not answered at once: they wait for a thread to read their
// request, or for the engine.
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
// UnaryCall add that. Life:
//
//   Run() -> enters -> its request is read -> Admit() -> Submit() -> [wake-up -> Pump()]* -> OnDone
//
// `self_` keeps the call alive until OnDone; a wake-up keeps it alive while it runs. Threads: a
// gRPC thread makes the call and reports cancellation, the deadline and the end. A pool thread
// reads a long request; no end overtakes that. The delivery thread wakes the call. `mutex_` guards
// the state of the derived classes too. It is not held during calls into gRPC; under it, only
// engine functions that do not block are called.
class PendingCall : public StreamListener,
                    public AbortableCall,
                    public std::enable_shared_from_this<PendingCall> {
 public:
  // Something arrived for this call.
  void OnStreamReady() override { Pump(); }
  // The answer has to leave now to be with the client in time.
  void OnDeadline() { Cut(ExpiredStatus); }
  bool Abort(const absl::Status& status) override {
    return Cut([&status](const CallRecord&) { return status; });
  }

 protected:
  // `rpc` outlives the call.
  PendingCall(grpc::CallbackServerContext* context, CallRecord record, const RpcContext& rpc);

  // Begins the call's life: lets it in, then `submit`s its parsed request, here or, when its bytes
  // are many, on a thread of rpc.texts once it is its turn. What `submit` returns ends the call
  // unless it is OK. `request` outlives the call.
  template <typename Message>
  void Run(const grpc::ByteBuffer& request, std::function<absl::Status(const Message&)> submit) {
    {
      MutexLock lock(&mutex_);
      request_ = &request;
    }
    Run(RequestIdIn(request), static_cast<int64_t>(request.Length()),
        [&request, submit = std::move(submit)]() -> absl::Status {
          Message message;
          TLM_RETURN_IF_ERROR(TakeMessage(request, message));
          return submit(message);
        });
  }
  // The same for a request that gRPC has parsed: its id and its size.
  void Run(const std::string& given_id, int64_t bytes, std::function<absl::Status()> submit);

  // Whether the call may come in, before its request is read.
  virtual absl::Status Enter() TLM_REQUIRES(mutex_) { return rpc_.admission.Enter(record_.caller); }
  // Goes on with the call: takes in what arrived, sends what is due, ends it.
  virtual void Pump() = 0;
  // Lets go of the engine's work: the client is gone or the call failed. Idempotent.
  virtual void Abandon() TLM_REQUIRES(mutex_) = 0;

  // Admits the call once record_.prompt_tokens is known; from now on it can be aborted.
  absl::Status Admit(int64_t priority = 0) TLM_REQUIRES(mutex_);
  // Queues work for an admitted call, as Engine::Submit; fills in whose it is and its deadline.
  absl::Status Submit(Request&& request) TLM_REQUIRES(mutex_);
  // The engine has started the call's first request.
  void NoteStart(const StreamStart& start) TLM_REQUIRES(mutex_);

  // Lets go of the engine's work and ends the call with status_of(record_) as soon as nothing is
  // written or read, unless it has ended or is about to; true when this is what ends it.
  bool Cut(absl::FunctionRef<absl::Status(const CallRecord&)> status_of);
  // The end, whose status the derived class tells gRPC. Once, with nothing being read.
  void SetEnd(const absl::Status& status) TLM_REQUIRES(mutex_);
  // gRPC is done with the call: counts it and lets go of it.
  void Done();

  // The call has been ended while its request is being read: what it still does is for nothing.
  bool IsEnding() {
    MutexLock lock(&mutex_);
    return ending_.has_value();
  }

  grpc::CallbackServerContext* const context_;
  const RpcContext& rpc_;
  Mutex mutex_;
  CallRecord record_ TLM_GUARDED_BY(mutex_);
  Admission::Ticket ticket_ TLM_GUARDED_BY(mutex_);
  bool reading_ TLM_GUARDED_BY(mutex_) = false;  // the request; nothing else may end the call then
  // How the call ends, whatever there would be to send.
  std::optional<absl::Status> ending_ TLM_GUARDED_BY(mutex_);
  bool finished_ TLM_GUARDED_BY(mutex_) = false;

 private:
  // The call has its id now, and is let in.
  absl::Status Begin(const std::string& given_id) TLM_REQUIRES(mutex_);
  // From now on until its end it can be aborted.
  void Register() TLM_REQUIRES(mutex_);
  // From now on the deadline ends the call; without this it does when gRPC cancels it.
  void WatchDeadline();
  void Read(const absl::Status& turn, const std::function<absl::Status()>& submit);
  // `submit` has returned.
  void Submitted(const absl::Status& status);
  // Another call may use the id from now on: a client may do so as soon as it sees the end.
  void FreeId() TLM_REQUIRES(mutex_);

  // Shared with itself until OnDone: gRPC 1.51 keeps a plain pointer.
  std::shared_ptr<PendingCall> self_;
  const grpc::ByteBuffer* request_ TLM_GUARDED_BY(mutex_) = nullptr;  // null: gRPC has parsed it
  FairPool::Undo turn_ TLM_GUARDED_BY(mutex_);  // while the request waits to be read
  CallRegistry::Registration registration_ TLM_GUARDED_BY(mutex_);
  DeadlineTimer deadline_timer_;
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CALL_PENDING_CALL_H_
