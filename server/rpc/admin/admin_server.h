// The admin port: the Admin service with health and reflection, apart from the data port.
#ifndef TLM_SERVER_RPC_ADMIN_ADMIN_SERVER_H_
#define TLM_SERVER_RPC_ADMIN_ADMIN_SERVER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/net/grpc_listener.h"
#include "server/rpc/admin/admin_context.h"
#include "server/rpc/admin/admin_service.h"
#include "server/rpc/call/unknown_call_service.h"

namespace tlm {

// Answers from Open to Shutdown, while the data port drains too. Thread-safe after Serve.
class AdminServer {
 public:
  // Listens as GrpcListener does, and is SERVING. Until Serve all calls but GetConfig end with
  // UNAVAILABLE, reason STARTING.
  static absl::StatusOr<std::unique_ptr<AdminServer>> Open(const ListenerOptions& options,
                                                           AdminContext admin);

  // From now on all calls are answered. Once.
  void Serve(const AdminTarget& target) { gate_.Open(target); }
  GrpcListener& listener() { return *listener_; }

 private:
  explicit AdminServer(const AdminContext& admin)
      : service_(admin, gate_), unknown_calls_(admin, UnknownCallService::Port::kAdmin) {}

  AdminGate gate_;
  AdminService service_;
  UnknownCallService unknown_calls_;
  std::unique_ptr<GrpcListener> listener_;  // last: uses the others
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_ADMIN_ADMIN_SERVER_H_
