// Calls that end immediately.
#ifndef TLM_SERVER_RPC_CALL_REFUSED_CALL_H_
#define TLM_SERVER_RPC_CALL_REFUSED_CALL_H_

#include <grpcpp/grpcpp.h>

#include "server/rpc/call/call_entry.h"
#include "server/rpc/call/call_log.h"
#include "server/rpc/call/call_record.h"
#include "server/rpc/call/status_mapping.h"

namespace tlm {

// Ends the call with record.status and counts it.
inline grpc::ServerUnaryReactor* EndUnary(grpc::CallbackServerContext* context,
                                          const CallRecord& record) {
  EndCall(record);
  if (record.status.ok()) ReturnTrace(*context, record);
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(record.status));
  return reactor;
}

// The status of a call that was reset, or half-closed, before its message arrived. Clients without
// credentials can make any number of them, so they are neither logged nor counted.
inline grpc::Status WithoutMessage() {
  return {grpc::StatusCode::INVALID_ARGUMENT, "the call has no message"};
}

inline grpc::ServerUnaryReactor* EndWithoutMessage(grpc::CallbackServerContext* context) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(WithoutMessage());
  return reactor;
}

// Lives until gRPC is done with it.
class RefusedStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  explicit RefusedStream(const grpc::Status& status) { Finish(status); }
  explicit RefusedStream(const CallRecord& record) : RefusedStream(ToGrpcStatus(record.status)) {
    EndCall(record);
  }
  void OnDone() override { delete this; }
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CALL_REFUSED_CALL_H_
