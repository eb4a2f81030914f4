// Answers calls that no registered service has.
#ifndef TLM_SERVER_RPC_UNKNOWN_CALL_SERVICE_H_
#define TLM_SERVER_RPC_UNKNOWN_CALL_SERVICE_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

namespace tlm {

// UNIMPLEMENTED with a message that names the call; gRPC by itself would send no message. Calls
// that belong on the server's other port are told so. Thread-safe.
class UnknownCallService final : public grpc::CallbackGenericService {
 public:
  // Which port it answers on.
  enum class Port { kData, kAdmin };

  explicit UnknownCallService(Port port) : port_(port) {}

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

 private:
  const Port port_;
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_UNKNOWN_CALL_SERVICE_H_
