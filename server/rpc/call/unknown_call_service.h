// Answers calls of unknown methods.
#ifndef TLM_SERVER_RPC_CALL_UNKNOWN_CALL_SERVICE_H_
#define TLM_SERVER_RPC_CALL_UNKNOWN_CALL_SERVICE_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <string>

#include "server/rpc/call/rpc_context.h"

namespace tlm {

// Ends them with UNIMPLEMENTED and a message that names the method (gRPC alone would send none), or
// the port that serves it. Calls without sufficient credentials end with the status of the failed
// check. Thread-safe.
class UnknownCallService final : public grpc::CallbackGenericService {
 public:
  // The port it answers on.
  enum class Port { kData, kAdmin };

  // `explain`, if not null, returns how a method "/SERVICE/METHOD" could be served, or an empty
  // string.
  UnknownCallService(const CallServices& services, Port port,
                     std::string (*explain)(const std::string& method) = nullptr)
      : services_(services), port_(port), explain_(explain) {}

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

 private:
  const CallServices services_;
  const Port port_;
  std::string (*const explain_)(const std::string& method);
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CALL_UNKNOWN_CALL_SERVICE_H_
