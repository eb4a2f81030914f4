#include "server/rpc/language_model_service.h"

#include "server/rpc/call_entry.h"
#include "server/rpc/convert.h"
#include "server/rpc/forward_handler.h"
#include "server/rpc/generate_handler.h"
#include "server/rpc/model_info_handler.h"
#include "server/rpc/refused_call.h"
#include "server/rpc/score_handler.h"
#include "server/rpc/status_mapping.h"
#include "server/rpc/tokenize_handler.h"

namespace tlm {

grpc::ServerWriteReactor<v1::GenerateResponse>* LanguageModelService::Generate(
    grpc::CallbackServerContext* context, const v1::GenerateRequest* request) {
  const RpcContext* const rpc = gate_.Get();
  if (rpc == nullptr) {
    return new RefusedStream<v1::GenerateResponse>(Starting("Generate", context));
  }
  return StartGenerate(context, *request, *rpc);
}

grpc::ServerWriteReactor<v1::ForwardResponse>* LanguageModelService::Forward(
    grpc::CallbackServerContext* context, const v1::ForwardRequest* request) {
  const RpcContext* const rpc = gate_.Get();
  if (rpc == nullptr) return new RefusedStream<v1::ForwardResponse>(Starting("Forward", context));
  return StartForward(context, *request, *rpc);
}

grpc::ServerUnaryReactor* LanguageModelService::ModelInfo(grpc::CallbackServerContext* context,
                                                          const v1::ModelInfoRequest* request,
                                                          v1::ModelInfoResponse* response) {
  return Unary("ModelInfo", Charge::kNothing, context, *request,
               [&](const ServedModel& model) { return GetModelInfo(*request, model, *response); });
}

grpc::ServerUnaryReactor* LanguageModelService::Score(grpc::CallbackServerContext* context,
                                                      const v1::ScoreRequest* request,
                                                      v1::ScoreResponse* response) {
  const RpcContext* const rpc = gate_.Get();
  if (rpc == nullptr) return RefuseUnary(context, Starting("Score", context));
  return StartScore(context, *request, response, *rpc);
}

grpc::ServerUnaryReactor* LanguageModelService::Tokenize(grpc::CallbackServerContext* context,
                                                         const v1::TokenizeRequest* request,
                                                         v1::TokenizeResponse* response) {
  return Unary("Tokenize", Charge::kRequest, context, *request,
               [&](const ServedModel& model) { return tlm::Tokenize(*request, model, *response); });
}

grpc::ServerUnaryReactor* LanguageModelService::Detokenize(grpc::CallbackServerContext* context,
                                                           const v1::DetokenizeRequest* request,
                                                           v1::DetokenizeResponse* response) {
  return Unary("Detokenize", Charge::kRequest, context, *request, [&](const ServedModel& model) {
    return tlm::Detokenize(*request, model, *response);
  });
}

CallRecord LanguageModelService::Starting(const char* name,
                                          grpc::CallbackServerContext* context) const {
  CallRecord record = BeginCall(name, Role::kInference, *context, services_);
  record.status = record.access.ok() ? StartingStatus() : record.access;
  return record;
}

// These take no time worth queueing for: answered on gRPC's own thread.
template <typename Request, typename Answer>
grpc::ServerUnaryReactor* LanguageModelService::Unary(const char* name, Charge charge,
                                                      grpc::CallbackServerContext* context,
                                                      const Request& request, Answer answer) {
  const RpcContext* const rpc = gate_.Get();
  if (rpc == nullptr) return RefuseUnary(context, Starting(name, context));
  CallRecord record = BeginCall(name, Role::kInference, *context, *rpc);
  const absl::StatusOr<std::string> request_id =
      RequestIdOf(request.request_id(), rpc->model, rpc->random);
  record.request_id = request_id.value_or("");
  record.status = record.access;
  if (record.status.ok()) record.status = request_id.status();
  if (record.status.ok() && charge == Charge::kRequest) {
    record.status = rpc->admission.CountRequest(record.caller);
  }
  if (record.status.ok()) record.status = answer(rpc->model);
  EndCall(record);
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(record.status));
  return reactor;
}

}  // namespace tlm
