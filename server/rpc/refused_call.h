// Calls that are over as soon as they come.
#ifndef TLM_SERVER_RPC_REFUSED_CALL_H_
#define TLM_SERVER_RPC_REFUSED_CALL_H_

#include <grpcpp/grpcpp.h>

#include <utility>

#include "server/rpc/call_record.h"
#include "server/rpc/status_mapping.h"

namespace tlm {

// Ends the call with record.status and counts it.
inline grpc::ServerUnaryReactor* EndUnary(grpc::CallbackServerContext* context,
                                          const CallRecord& record) {
  EndCall(record);
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(record.status));
  return reactor;
}

// Lives until gRPC is done with it.
class RefusedStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  explicit RefusedStream(const CallRecord& record) {
    EndCall(record);
    Finish(ToGrpcStatus(record.status));
  }
  void OnDone() override { delete this; }
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_REFUSED_CALL_H_
