// Serves tlm.v1.Admin on the admin port and dispatches its calls to handlers.
#ifndef TLM_SERVER_RPC_ADMIN_ADMIN_SERVICE_H_
#define TLM_SERVER_RPC_ADMIN_ADMIN_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "server/net/grpc_listener.h"
#include "server/rpc/admin/admin_handlers.h"
#include "server/rpc/call/gate.h"
#include "server/rpc/call/unknown_call_service.h"
#include "tlm/v1/admin.grpc.pb.h"

namespace tlm {

using AdminGate = Gate<AdminTarget>;

// Thread-safe: gRPC calls it from its threads.
class AdminService final : public v1::Admin::CallbackService {
 public:
  // `gate` outlives the service and its calls. Until it is open all calls except GetConfig end with
  // UNAVAILABLE, reason STARTING.
  AdminService(AdminContext admin, const AdminGate& gate) : admin_(std::move(admin)), gate_(gate) {}

  grpc::ServerUnaryReactor* GetLoad(grpc::CallbackServerContext* context,
                                    const v1::GetLoadRequest* request,
                                    v1::GetLoadResponse* response) override;
  grpc::ServerUnaryReactor* Abort(grpc::CallbackServerContext* context,
                                  const v1::AbortRequest* request,
                                  v1::AbortResponse* response) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const v1::DrainRequest* request,
                                  v1::DrainResponse* response) override;
  grpc::ServerUnaryReactor* FlushPrefixCache(grpc::CallbackServerContext* context,
                                             const v1::FlushPrefixCacheRequest* request,
                                             v1::FlushPrefixCacheResponse* response) override;
  grpc::ServerUnaryReactor* GetConfig(grpc::CallbackServerContext* context,
                                      const v1::GetConfigRequest* request,
                                      v1::GetConfigResponse* response) override;

 private:
  // Returns the record of the call that begins; its status is OK, or says why the caller is
  // refused.
  CallRecord Begin(const char* name, grpc::CallbackServerContext* context) const;
  // `answer(target)` fills the response and returns the status of the call.
  template <typename Answer>
  grpc::ServerUnaryReactor* Unary(const char* name, grpc::CallbackServerContext* context,
                                  Answer answer) const;

  const AdminContext admin_;
  const AdminGate& gate_;
};

// The admin port: the Admin service with health and reflection, apart from the data port. It
// answers from Open to Shutdown, also while the data port drains. Thread-safe after Serve.
class AdminServer {
 public:
  // Listens as GrpcListener does, and is SERVING. Until Serve all calls except GetConfig end with
  // UNAVAILABLE, reason STARTING.
  static absl::StatusOr<std::unique_ptr<AdminServer>> Open(const ListenerOptions& options,
                                                           AdminContext admin);

  // Answers all calls from now on. Called once.
  void Serve(const AdminTarget& target) { gate_.Open(target); }
  GrpcListener& listener() { return *listener_; }

 private:
  explicit AdminServer(const AdminContext& admin)
      : service_(admin, gate_), unknown_calls_(admin, UnknownCallService::Port::kAdmin) {}

  AdminGate gate_;
  AdminService service_;
  UnknownCallService unknown_calls_;
  std::unique_ptr<GrpcListener> listener_;  // last: it uses the other members
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_ADMIN_ADMIN_SERVICE_H_
