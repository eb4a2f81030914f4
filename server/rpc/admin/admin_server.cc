#include "server/rpc/admin/admin_server.h"

#include "model/base/errors.h"

namespace tlm {

absl::StatusOr<std::unique_ptr<AdminServer>> AdminServer::Open(const ListenerOptions& options,
                                                               AdminContext admin) {
  std::unique_ptr<AdminServer> server(new AdminServer(std::move(admin)));
  TLM_ASSIGN_OR_RETURN(
      server->listener_,
      GrpcListener::Open(options, RequestLimits(),
                         {.services = {{v1::Admin::service_full_name(), &server->service_}},
                          .unknown_calls = &server->unknown_calls_}));
  server->listener_->SetServing(true);
  TLM_RETURN_IF_ERROR(server->listener_->Listen());
  return server;
}

}  // namespace tlm
