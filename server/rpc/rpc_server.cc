#include "server/rpc/rpc_server.h"

#include "model/base/errors.h"

namespace tlm {

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Open(
    const ListenerOptions& options, const CallServices& services,
    const std::vector<std::string>& facades) {
  std::unique_ptr<RpcServer> server(new RpcServer(services));
  GrpcListener::Services served;
  served.services.push_back({v1::LanguageModel::service_full_name(), &server->service_});
  served.services.push_back(
      {xds::service::orca::v3::OpenRcaService::service_full_name(), &server->load_});
  server->facades_ = MakeFacades(facades, services, server->gate_);
  for (const auto& facade : server->facades_) {
    for (const auto& service : facade->Services()) served.services.push_back(service);
  }
  served.unknown_calls = &server->unknown_calls_;
  TLM_ASSIGN_OR_RETURN(server->listener_, GrpcListener::Open(options, RequestLimits(), served));
  return server;
}

}  // namespace tlm
