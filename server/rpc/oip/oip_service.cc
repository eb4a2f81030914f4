#include "server/rpc/oip/oip_service.h"

#include "server/rpc/call/call_entry.h"
#include "server/rpc/call/refused_call.h"
#include "server/rpc/oip/oip_convert.h"
#include "server/rpc/oip/oip_infer.h"

namespace tlm {
namespace {

grpc::ServerUnaryReactor* Done(grpc::CallbackServerContext* context) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace

template <typename Answer>
grpc::ServerUnaryReactor* OipService::Ask(const char* name, grpc::CallbackServerContext* context,
                                          Answer answer) {
  CallRecord record = BeginCall(name, Role::kInference, *context, services_);
  const RpcContext* const rpc = gate_.Get();
  record.status = record.access;
  if (record.status.ok()) record.status = rpc == nullptr ? StartingStatus() : answer(*rpc);
  return EndUnary(context, record);
}

grpc::ServerUnaryReactor* OipService::ServerLive(grpc::CallbackServerContext* context,
                                                 const inference::ServerLiveRequest* /*request*/,
                                                 inference::ServerLiveResponse* response) {
  response->set_live(true);
  return Done(context);
}

grpc::ServerUnaryReactor* OipService::ServerReady(grpc::CallbackServerContext* context,
                                                  const inference::ServerReadyRequest* /*request*/,
                                                  inference::ServerReadyResponse* response) {
  response->set_ready(serving_);
  return Done(context);
}

grpc::ServerUnaryReactor* OipService::ModelReady(grpc::CallbackServerContext* context,
                                                 const inference::ModelReadyRequest* request,
                                                 inference::ModelReadyResponse* response) {
  const RpcContext* const rpc = gate_.Get();
  response->set_ready(rpc != nullptr && serving_ &&
                      CheckOipModel(request->name(), request->version(), rpc->model).ok());
  return Done(context);
}

grpc::ServerUnaryReactor* OipService::ServerMetadata(
    grpc::CallbackServerContext* context, const inference::ServerMetadataRequest* /*request*/,
    inference::ServerMetadataResponse* response) {
  return Ask("ServerMetadata", context, [&](const RpcContext& rpc) {
    response->set_name("tlm");
    response->set_version(rpc.model.server_version);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* OipService::ModelMetadata(grpc::CallbackServerContext* context,
                                                    const inference::ModelMetadataRequest* request,
                                                    inference::ModelMetadataResponse* response) {
  return Ask("ModelMetadata", context, [&](const RpcContext& rpc) {
    const absl::Status known = CheckOipModel(request->name(), request->version(), rpc.model);
    if (known.ok()) FillOipMetadata(rpc.model, *response);
    return known;
  });
}

grpc::ServerUnaryReactor* OipService::ModelInfer(grpc::CallbackServerContext* context,
                                                 const inference::ModelInferRequest* request,
                                                 inference::ModelInferResponse* response) {
  if (const RpcContext* const rpc = gate_.Get(); rpc != nullptr) {
    return StartOipInfer(context, *request, response, *rpc);
  }
  return Ask("ModelInfer", context, [](const RpcContext&) { return StartingStatus(); });
}

}  // namespace tlm
