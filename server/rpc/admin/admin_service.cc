#include "server/rpc/admin/admin_service.h"

#include <spdlog/spdlog.h>

#include <string_view>

#include "model/base/errors.h"
#include "server/observe/log.h"
#include "server/rpc/call/call_entry.h"
#include "server/rpc/call/call_log.h"
#include "server/rpc/call/status_mapping.h"

namespace tlm {
namespace {

// Only refused calls are recorded: monitors call GetLoad every second.
grpc::ServerUnaryReactor* FinishWith(grpc::CallbackServerContext* context,
                                     const CallRecord& record) {
  if (!record.status.ok()) EndCall(record);
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(record.status));
  return reactor;
}

bool IsReadOnly(std::string_view name) { return name == "GetLoad" || name == "GetConfig"; }

}  // namespace

// Calls that change something leave a log line that names the caller.
CallRecord AdminService::Begin(const char* name, grpc::CallbackServerContext* context) const {
  CallRecord record = BeginCall(name, Role::kAdmin, *context, admin_);
  record.status = record.access;
  if (!record.status.ok()) return record;
  ReturnTrace(*context, record);
  if (!IsReadOnly(name)) {
    spdlog::info("admin {}: requested by tenant={} credential={} peer={}", name,
                 LogQuoted(record.caller.tenant), LogQuoted(record.caller.credential), record.peer);
  }
  return record;
}

template <typename Answer>
grpc::ServerUnaryReactor* AdminService::Unary(const char* name,
                                              grpc::CallbackServerContext* context,
                                              Answer answer) const {
  CallRecord record = Begin(name, context);
  const AdminTarget* const target = gate_.Get();
  if (record.status.ok()) record.status = target == nullptr ? StartingStatus() : answer(*target);
  return FinishWith(context, record);
}

grpc::ServerUnaryReactor* AdminService::GetLoad(grpc::CallbackServerContext* context,
                                                const v1::GetLoadRequest* /*request*/,
                                                v1::GetLoadResponse* response) {
  return Unary("GetLoad", context, [&](const AdminTarget& target) {
    tlm::GetLoad(admin_, target, *response);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AdminService::Abort(grpc::CallbackServerContext* context,
                                              const v1::AbortRequest* request,
                                              v1::AbortResponse* response) {
  return Unary("Abort", context,
               [&](const AdminTarget& target) { return AbortCalls(*request, target, *response); });
}

grpc::ServerUnaryReactor* AdminService::Drain(grpc::CallbackServerContext* context,
                                              const v1::DrainRequest* request,
                                              v1::DrainResponse* response) {
  return Unary("Drain", context, [&](const AdminTarget& target) {
    return BeginDrain(*request, admin_, target, *response);
  });
}

grpc::ServerUnaryReactor* AdminService::FlushPrefixCache(
    grpc::CallbackServerContext* context, const v1::FlushPrefixCacheRequest* /*request*/,
    v1::FlushPrefixCacheResponse* response) {
  CallRecord record = Begin("FlushPrefixCache", context);
  const AdminTarget* const target = gate_.Get();
  if (record.status.ok() && target == nullptr) record.status = StartingStatus();
  if (!record.status.ok()) return FinishWith(context, record);
  return StartFlushPrefixCache(target->engine, response);
}

grpc::ServerUnaryReactor* AdminService::GetConfig(grpc::CallbackServerContext* context,
                                                  const v1::GetConfigRequest* /*request*/,
                                                  v1::GetConfigResponse* response) {
  const CallRecord record = Begin("GetConfig", context);
  if (record.status.ok()) tlm::GetConfig(admin_, *response);
  return FinishWith(context, record);
}

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
