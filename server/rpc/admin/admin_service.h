// The gRPC service tlm.v1.Admin: which handler answers which call.
#ifndef TLM_SERVER_RPC_ADMIN_ADMIN_SERVICE_H_
#define TLM_SERVER_RPC_ADMIN_ADMIN_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <utility>

#include "server/rpc/admin/admin_context.h"
#include "server/rpc/call/gate.h"
#include "tlm/v1/admin.grpc.pb.h"

namespace tlm {

using AdminGate = Gate<AdminTarget>;

// Thread-safe: gRPC calls it from its threads.
class AdminService final : public v1::Admin::CallbackService {
 public:
  // `gate` outlives the service and its calls. Until it is open all calls but GetConfig end with
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
  // OK, or why the caller is refused.
  absl::Status Access(const char* name, grpc::CallbackServerContext* context) const;
  // `answer(target)` fills the response and returns the status of the call.
  template <typename Answer>
  grpc::ServerUnaryReactor* Unary(const char* name, grpc::CallbackServerContext* context,
                                  Answer answer) const;

  const AdminContext admin_;
  const AdminGate& gate_;
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_ADMIN_ADMIN_SERVICE_H_
