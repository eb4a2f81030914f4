// Calls that end before anything of them is looked at.
#ifndef TLM_SERVER_RPC_REFUSED_CALL_H_
#define TLM_SERVER_RPC_REFUSED_CALL_H_

#include <grpcpp/grpcpp.h>

#include <utility>

#include "server/rpc/call_record.h"
#include "server/rpc/status_mapping.h"

namespace tlm {

// Ends the call with record.status and counts it.
inline grpc::ServerUnaryReactor* RefuseUnary(grpc::CallbackServerContext* context,
                                             const CallRecord& record) {
  EndCall(record);
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(record.status));
  return reactor;
}

// Lives until gRPC is done with it.
template <typename Response>
class RefusedStream final : public grpc::ServerWriteReactor<Response> {
 public:
  explicit RefusedStream(const CallRecord& record) {
    EndCall(record);
    this->Finish(ToGrpcStatus(record.status));
  }
  void OnDone() override { delete this; }
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_REFUSED_CALL_H_
