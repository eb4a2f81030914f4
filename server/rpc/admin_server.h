// The admin port: the Admin service with health and reflection, apart from the data port.
#ifndef TLM_SERVER_RPC_ADMIN_SERVER_H_
#define TLM_SERVER_RPC_ADMIN_SERVER_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/rpc/admin_context.h"
#include "server/rpc/admin_service.h"
#include "server/rpc/grpc_listener.h"
#include "server/rpc/unknown_call_service.h"

namespace tlm {

// Answers from Start to Shutdown, while the data port drains too. Thread-safe after Start.
class AdminServer {
 public:
  // Listens on `host`:`port` as GrpcListener does, and is SERVING.
  static absl::StatusOr<std::unique_ptr<AdminServer>> Start(const std::string& host, int port,
                                                            AdminContext admin);

  int port() const { return listener_->port(); }
  // As GrpcListener's.
  void Shutdown(absl::Duration grace) { listener_->Shutdown(grace); }

 private:
  explicit AdminServer(AdminContext admin) : service_(std::move(admin)) {}

  AdminService service_;
  UnknownCallService unknown_calls_{UnknownCallService::Port::kAdmin};
  std::unique_ptr<GrpcListener> listener_;  // last: uses the others
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_ADMIN_SERVER_H_
