// The gRPC service tlm.v1.Admin: which handler answers which call.
#ifndef TLM_SERVER_RPC_ADMIN_SERVICE_H_
#define TLM_SERVER_RPC_ADMIN_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <utility>

#include "server/rpc/admin_context.h"
#include "tlm/v1/admin.grpc.pb.h"

namespace tlm {

// Thread-safe: gRPC calls it from its threads.
class AdminService final : public v1::Admin::CallbackService {
 public:
  explicit AdminService(AdminContext admin) : admin_(std::move(admin)) {}

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
  const AdminContext admin_;
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_ADMIN_SERVICE_H_
