// Implements unary calls that wait for a pool thread or the engine.
#ifndef TLM_SERVER_RPC_CALL_UNARY_CALL_H_
#define TLM_SERVER_RPC_CALL_UNARY_CALL_H_

#include <grpcpp/grpcpp.h>

#include <optional>

#include "absl/status/status.h"
#include "server/rpc/call/call_entry.h"
#include "server/rpc/call/pending_call.h"
#include "server/rpc/call/status_mapping.h"

namespace tlm {

// A reactor that owns everything of one call: see PendingCall.
class UnaryCall : public grpc::ServerUnaryReactor, public PendingCall {
 protected:
  using PendingCall::PendingCall;

  // Collects results. Returns the status once the call ends; the response is complete if it is OK.
  virtual std::optional<absl::Status> Collect() TLM_REQUIRES(mutex_) = 0;

 private:
  void Pump() override {
    absl::Status end;
    {
      MutexLock lock(&mutex_);
      if (finished_ || reading_) return;
      if (!ending_.has_value()) ending_ = Collect();
      if (!ending_.has_value()) return;
      end = *ending_;
      if (end.ok()) ReturnTrace(*context_, record_);
      SetEnd(end);
    }
    Finish(ToGrpcStatus(end));
  }
  void OnCancel() override { Cut(CancelledStatus); }
  void OnDone() override { Done(); }
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CALL_UNARY_CALL_H_
