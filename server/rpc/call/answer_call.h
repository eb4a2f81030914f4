// Calls that are answered at once, by what the server knows.
#ifndef TLM_SERVER_RPC_CALL_ANSWER_CALL_H_
#define TLM_SERVER_RPC_CALL_ANSWER_CALL_H_

#include <grpcpp/grpcpp.h>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "server/rpc/call/call_entry.h"
#include "server/rpc/call/gate.h"
#include "server/rpc/call/refused_call.h"

namespace tlm {

// How the call named `name`, which needs credentials and a model, ends by `answer`; until `gate` is
// open with UNAVAILABLE, reason STARTING.
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

// Answers the call named `name` as AnsweredCall says.
inline grpc::ServerUnaryReactor* AnswerCall(
    const char* name, grpc::CallbackServerContext* context, const CallServices& services,
    const RpcGate& gate,
    absl::FunctionRef<absl::Status(const RpcContext&, const Principal& caller)> answer) {
  return EndUnary(context, AnsweredCall(name, *context, services, gate, answer));
}

// Answers a call that needs neither: a probe.
inline grpc::ServerUnaryReactor* AnswerProbe(grpc::CallbackServerContext* context) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CALL_ANSWER_CALL_H_
