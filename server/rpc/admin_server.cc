#include "server/rpc/admin_server.h"

#include "model/base/errors.h"

namespace tlm {

absl::StatusOr<std::unique_ptr<AdminServer>> AdminServer::Start(const std::string& host, int port,
                                                                AdminContext admin) {
  const RequestLimits& limits = admin.limits;
  std::unique_ptr<AdminServer> server(new AdminServer(std::move(admin)));
  TLM_ASSIGN_OR_RETURN(server->listener_,
                       GrpcListener::Open(host, port, limits,
                                          {.name = v1::Admin::service_full_name(),
                                           .service = &server->service_,
                                           .unknown_calls = &server->unknown_calls_}));
  server->listener_->SetServing(true);
  return server;
}

}  // namespace tlm
