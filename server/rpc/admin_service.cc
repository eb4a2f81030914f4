#include "server/rpc/admin_service.h"

#include "server/rpc/admin_flush_call.h"
#include "server/rpc/admin_handlers.h"
#include "server/rpc/status_mapping.h"

namespace tlm {
namespace {

grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

}  // namespace

grpc::ServerUnaryReactor* AdminService::GetLoad(grpc::CallbackServerContext* context,
                                                const v1::GetLoadRequest* /*request*/,
                                                v1::GetLoadResponse* response) {
  tlm::GetLoad(admin_, *response);
  return Answer(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* AdminService::Abort(grpc::CallbackServerContext* context,
                                              const v1::AbortRequest* request,
                                              v1::AbortResponse* response) {
  return Answer(context, AbortCalls(*request, admin_, *response));
}

grpc::ServerUnaryReactor* AdminService::Drain(grpc::CallbackServerContext* context,
                                              const v1::DrainRequest* request,
                                              v1::DrainResponse* response) {
  return Answer(context, BeginDrain(*request, admin_, *response));
}

grpc::ServerUnaryReactor* AdminService::FlushPrefixCache(
    grpc::CallbackServerContext* /*context*/, const v1::FlushPrefixCacheRequest* /*request*/,
    v1::FlushPrefixCacheResponse* response) {
  return StartFlushPrefixCache(admin_.engine, response);
}

grpc::ServerUnaryReactor* AdminService::GetConfig(grpc::CallbackServerContext* context,
                                                  const v1::GetConfigRequest* /*request*/,
                                                  v1::GetConfigResponse* response) {
  tlm::GetConfig(admin_, *response);
  return Answer(context, absl::OkStatus());
}

}  // namespace tlm
