// Answers calls that no registered service has.
#ifndef TLM_SERVER_RPC_UNKNOWN_CALL_SERVICE_H_
#define TLM_SERVER_RPC_UNKNOWN_CALL_SERVICE_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

namespace tlm {

// UNIMPLEMENTED with a message that names the call; gRPC by itself would send no message. The Admin
// service of the contract is among them: it is not built, and would not be on this port.
// Thread-safe.
class UnknownCallService final : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_UNKNOWN_CALL_SERVICE_H_
