#include "server/rpc/facades/oip/oip_facade.h"

#include <memory>
#include <string>

#include "model/base/errors.h"
#include "server/rpc/call/answer_call.h"
#include "server/rpc/facades/oip/oip_convert.h"
#include "server/rpc/generate/generate_call.h"

namespace tlm {
namespace {

class OipMapping final
    : public GenerateMapping<inference::ModelInferRequest, inference::ModelInferResponse> {
 public:
  absl::Status Read(inference::ModelInferRequest& request, const ServedModel& model,
                    v1::GenerateRequest& generate) override {
    model_ = &model;
    TLM_ASSIGN_OR_RETURN(call_, ConvertOip(request, model));
    generate.Swap(&call_.request);
    return absl::OkStatus();
  }

  bool Write(v1::GenerateResponse& event, inference::ModelInferResponse& response) override {
    if (event.has_started()) request_id_ = event.started().request_id();
    if (event.has_finished()) answer_.reason = event.finished().reason();
    answer_.text += event.tokens().text();
    for (const v1::TokenInfo& token : event.tokens().tokens()) {
      answer_.ids.push_back(static_cast<int32_t>(token.id()));
    }
    if (event.has_summary()) FillOipResponse(call_, answer_, request_id_, *model_, response);
    return true;
  }

 private:
  const ServedModel* model_ = nullptr;
  OipCall call_;
  OipAnswer answer_;
  std::string request_id_;
};

}  // namespace

grpc::ServerUnaryReactor* OipFacade::ServerLive(grpc::CallbackServerContext* context,
                                                const inference::ServerLiveRequest* /*request*/,
                                                inference::ServerLiveResponse* response) {
  response->set_live(true);
  return AnswerProbe(context);
}

grpc::ServerUnaryReactor* OipFacade::ServerReady(grpc::CallbackServerContext* context,
                                                 const inference::ServerReadyRequest* /*request*/,
                                                 inference::ServerReadyResponse* response) {
  response->set_ready(serving());
  return AnswerProbe(context);
}

grpc::ServerUnaryReactor* OipFacade::ModelReady(grpc::CallbackServerContext* context,
                                                const inference::ModelReadyRequest* request,
                                                inference::ModelReadyResponse* response) {
  const RpcContext* const rpc = gate().Get();
  response->set_ready(rpc != nullptr && serving() &&
                      CheckOipModel(request->name(), request->version(), rpc->model).ok());
  return AnswerProbe(context);
}

grpc::ServerUnaryReactor* OipFacade::ServerMetadata(
    grpc::CallbackServerContext* context, const inference::ServerMetadataRequest* /*request*/,
    inference::ServerMetadataResponse* response) {
  return AnswerCall("ServerMetadata", context, services(), gate(),
                    [&](const RpcContext& rpc, const Principal& /*caller*/) {
                      response->set_name("tlm");
                      response->set_version(rpc.model.server_version);
                      return absl::OkStatus();
                    });
}

grpc::ServerUnaryReactor* OipFacade::ModelMetadata(grpc::CallbackServerContext* context,
                                                   const inference::ModelMetadataRequest* request,
                                                   inference::ModelMetadataResponse* response) {
  return AnswerCall("ModelMetadata", context, services(), gate(),
                    [&](const RpcContext& rpc, const Principal& /*caller*/) {
                      const absl::Status known =
                          CheckOipModel(request->name(), request->version(), rpc.model);
                      if (known.ok()) FillOipMetadata(rpc.model, *response);
                      return known;
                    });
}

grpc::ServerUnaryReactor* OipFacade::ModelInfer(grpc::CallbackServerContext* context,
                                                const grpc::ByteBuffer* request,
                                                grpc::ByteBuffer* response) {
  return StartGenerateUnary({"ModelInfer", inference::ModelInferRequest::kIdFieldNumber}, context,
                            *request, response, services(), gate(), std::make_unique<OipMapping>());
}

}  // namespace tlm
