#include "server/rpc/rpc_server.h"

#include "model/base/errors.h"

namespace tlm {

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Open(const ListenerOptions& options,
                                                           const CallServices& services, bool oip) {
  std::unique_ptr<RpcServer> server(new RpcServer(services));
  GrpcListener::Services served;
  served.services.push_back({v1::LanguageModel::service_full_name(), &server->service_});
  if (oip) {
    served.services.push_back(
        {inference::GRPCInferenceService::service_full_name(), &server->oip_});
  }
  served.unknown_calls = &server->unknown_calls_;
  TLM_ASSIGN_OR_RETURN(server->listener_, GrpcListener::Open(options, RequestLimits(), served));
  return server;
}

}  // namespace tlm
