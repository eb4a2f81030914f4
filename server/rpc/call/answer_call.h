// Ends calls at once: refused calls, and calls answered without the engine.
#ifndef TLM_SERVER_RPC_CALL_ANSWER_CALL_H_
#define TLM_SERVER_RPC_CALL_ANSWER_CALL_H_

#include <grpcpp/grpcpp.h>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "server/rpc/call/call_entry.h"
#include "server/rpc/call/call_log.h"
#include "server/rpc/call/call_record.h"
#include "server/rpc/call/gate.h"
#include "server/rpc/call/status_mapping.h"

namespace tlm {

// Ends the call with record.status and records its end.
inline grpc::ServerUnaryReactor* EndUnary(grpc::CallbackServerContext* context,
                                          const CallRecord& record) {
  EndCall(record);
  if (record.status.ok()) ReturnTrace(*context, record);
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(record.status));
  return reactor;
}

// Returns the status of a call that was reset, or half-closed, before its message arrived. Clients
// without credentials can make any number of such calls, so they are neither logged nor counted.
inline grpc::Status WithoutMessage() {
  return {grpc::StatusCode::INVALID_ARGUMENT, "the call has no message"};
}

inline grpc::ServerUnaryReactor* EndWithoutMessage(grpc::CallbackServerContext* context) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(WithoutMessage());
  return reactor;
}

// A stream that ends at once. Deletes itself once gRPC is done with it.
class RefusedStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  explicit RefusedStream(const grpc::Status& status) { Finish(status); }
  explicit RefusedStream(const CallRecord& record) : RefusedStream(ToGrpcStatus(record.status)) {
    EndCall(record);
  }
  void OnDone() override { delete this; }
};

// Makes the record of the call `name`, which needs credentials and a model: `answer` gives its
// status. Until `gate` is open the status is UNAVAILABLE, reason STARTING.
inline CallRecord AnsweredCall(
    const char* name, grpc::CallbackServerContext& context, const CallServices& services,
    const RpcGate& gate,
    absl::FunctionRef<absl::Status(const RpcContext&, const Principal& caller)> answer) {
  CallRecord record = BeginCall(name, Role::kInference, context, services);
  const RpcContext* const rpc = gate.Get();
  record.status = record.access;
  if (record.status.ok()) {
    record.status = rpc == nullptr ? StartingStatus() : answer(*rpc, record.caller);
  }
  return record;
}

// Ends the call `name` with the status from AnsweredCall.
inline grpc::ServerUnaryReactor* AnswerCall(
    const char* name, grpc::CallbackServerContext* context, const CallServices& services,
    const RpcGate& gate,
    absl::FunctionRef<absl::Status(const RpcContext&, const Principal& caller)> answer) {
  return EndUnary(context, AnsweredCall(name, *context, services, gate, answer));
}

// Answers a probe, a call that needs neither credentials nor a model.
inline grpc::ServerUnaryReactor* AnswerProbe(grpc::CallbackServerContext* context) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CALL_ANSWER_CALL_H_
