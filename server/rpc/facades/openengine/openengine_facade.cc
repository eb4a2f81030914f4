#include "server/rpc/facades/openengine/openengine_facade.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "absl/time/clock.h"
#include "model/base/errors.h"
#include "server/rpc/call/answer_call.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/field_error.h"
#include "server/rpc/facades/openengine/openengine_generate.h"
#include "server/rpc/generate/generate_call.h"

namespace tlm {
namespace {

std::vector<std::string> ValuesOf(const grpc::CallbackServerContext& context, const char* key) {
  const auto [begin, end] = context.client_metadata().equal_range(key);
  std::vector<std::string> values;
  for (auto entry = begin; entry != end; ++entry) {
    values.emplace_back(entry->second.data(), entry->second.size());
  }
  return values;
}

// Returns how many calls were ended.
absl::StatusOr<int64_t> AbortTarget(const openengine::AbortRequest& request, const RpcContext& rpc,
                                    const Principal& caller) {
  switch (request.target_case()) {
    case openengine::AbortRequest::kRequestId: {
      google::protobuf::RepeatedPtrField<std::string> ids;
      ids.Add()->assign(request.request_id());
      return AbortOwnCalls(rpc, caller, ids);
    }
    case openengine::AbortRequest::kKvSession:
      return NotBuilt("kv_session", "the transfer of KV caches between servers");
    case openengine::AbortRequest::kAllRequests:
      return rpc.calls.AbortAll(caller.tenant, AbortedByClient()).calls;
    case openengine::AbortRequest::TARGET_NOT_SET:
      break;
  }
  return BadField("target", "is missing: one of request_id and all_requests is required");
}

}  // namespace

OpenEngineFacade::OpenEngineFacade(const CallServices& services, const RpcGate& gate)
    : Facade(services, gate), instance_id_(fmt::format("{:016x}", services.random())) {}

std::vector<GrpcListener::NamedService> OpenEngineFacade::Services() {
  return {{openengine::Inference::service_full_name(), static_cast<OpenEngineInference*>(this)},
          {openengine::Control::service_full_name(),
           static_cast<openengine::Control::CallbackService*>(this)}};
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* OpenEngineFacade::Generate(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  OpenEngineMetadata metadata{
      .priority = ValuesOf(*context, "openengine-priority"),
      .data_parallel_rank = ValuesOf(*context, "openengine-target-dp-rank")};
  return StartGenerateStream({"openengine.Generate"}, context, *request, services(), gate(),
                             std::make_unique<OpenEngineMapping>(std::move(metadata)));
}

grpc::ServerUnaryReactor* OpenEngineFacade::GetServerInfo(
    grpc::CallbackServerContext* context, const openengine::GetServerInfoRequest* /*request*/,
    openengine::ServerInfo* response) {
  return AnswerCall("openengine.GetServerInfo", context, services(), gate(),
                    [&](const RpcContext& rpc, const Principal& /*caller*/) {
                      FillServerInfo(rpc.model, *response);
                      response->set_instance_id(instance_id_);
                      return absl::OkStatus();
                    });
}

grpc::ServerUnaryReactor* OpenEngineFacade::GetModelInfo(
    grpc::CallbackServerContext* context, const openengine::GetModelInfoRequest* request,
    openengine::ModelInfo* response) {
  return AnswerCall(
      "openengine.GetModelInfo", context, services(), gate(),
      [&](const RpcContext& rpc, const Principal& /*caller*/) -> absl::Status {
        TLM_RETURN_IF_ERROR(CheckModelName(ServedNameOf(request->model(), rpc.model), rpc.model));
        FillModelInfo(rpc.model, *response);
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* OpenEngineFacade::GetLoad(grpc::CallbackServerContext* context,
                                                    const openengine::GetLoadRequest* request,
                                                    openengine::LoadInfo* response) {
  return AnswerCall("openengine.GetLoad", context, services(), gate(),
                    [&](const RpcContext& rpc, const Principal& /*caller*/) {
                      FillLoad(rpc.engine.Stats(), absl::Now(), request->include_per_rank(),
                               *response);
                      response->set_instance_id(instance_id_);
                      return absl::OkStatus();
                    });
}

grpc::ServerUnaryReactor* OpenEngineFacade::Health(grpc::CallbackServerContext* context,
                                                   const openengine::HealthRequest* request,
                                                   openengine::HealthResponse* response) {
  if (request->include_inference_probe()) {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(ToGrpcStatus(NotBuilt("include_inference_probe", "probes by inference")));
    return reactor;
  }
  response->set_state(gate().Get() == nullptr ? openengine::HEALTH_STATE_STARTING
                      : serving()             ? openengine::HEALTH_STATE_READY
                                              : openengine::HEALTH_STATE_NOT_READY);
  return AnswerProbe(context);
}

grpc::ServerUnaryReactor* OpenEngineFacade::Abort(grpc::CallbackServerContext* context,
                                                  const openengine::AbortRequest* request,
                                                  openengine::AbortResponse* response) {
  return AnswerCall("openengine.Abort", context, services(), gate(),
                    [&](const RpcContext& rpc, const Principal& caller) -> absl::Status {
                      TLM_ASSIGN_OR_RETURN(const int64_t ended, AbortTarget(*request, rpc, caller));
                      response->set_status(ended > 0 ? openengine::ABORT_STATUS_ABORTED
                                                     : openengine::ABORT_STATUS_ALREADY_FINISHED);
                      return absl::OkStatus();
                    });
}

grpc::ServerUnaryReactor* OpenEngineFacade::GetKvEventSources(
    grpc::CallbackServerContext* context, const openengine::GetKvEventSourcesRequest* request,
    openengine::GetKvEventSourcesResponse* response) {
  const auto& ranks = request->data_parallel_ranks();
  const bool wanted = ranks.empty() || std::count(ranks.begin(), ranks.end(), 0u) > 0;
  return AnswerCall("openengine.GetKvEventSources", context, services(), gate(),
                    [&](const RpcContext& rpc, const Principal& /*caller*/) {
                      if (wanted) AddKvEventSource(rpc.model, *response);
                      return absl::OkStatus();
                    });
}

}  // namespace tlm
