#include "server/rpc/rpc_server.h"

#include "model/base/errors.h"

namespace tlm {

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(const std::string& host, int port,
                                                            const RpcContext& rpc) {
  std::unique_ptr<RpcServer> server(new RpcServer(rpc));
  TLM_ASSIGN_OR_RETURN(server->listener_,
                       GrpcListener::Open(host, port, rpc.model.limits,
                                          {.name = v1::LanguageModel::service_full_name(),
                                           .service = &server->service_,
                                           .unknown_calls = &server->unknown_calls_}));
  return server;
}

}  // namespace tlm
