#include "server/rpc/language_model_service.h"

#include "server/rpc/call_record.h"
#include "server/rpc/convert.h"
#include "server/rpc/forward_handler.h"
#include "server/rpc/generate_handler.h"
#include "server/rpc/model_info_handler.h"
#include "server/rpc/score_handler.h"
#include "server/rpc/status_mapping.h"
#include "server/rpc/tokenize_handler.h"

namespace tlm {

grpc::ServerWriteReactor<v1::GenerateResponse>* LanguageModelService::Generate(
    grpc::CallbackServerContext* context, const v1::GenerateRequest* request) {
  return StartGenerate(context, *request, rpc_);
}

grpc::ServerWriteReactor<v1::ForwardResponse>* LanguageModelService::Forward(
    grpc::CallbackServerContext* context, const v1::ForwardRequest* request) {
  return StartForward(context, *request, rpc_);
}

grpc::ServerUnaryReactor* LanguageModelService::ModelInfo(grpc::CallbackServerContext* context,
                                                          const v1::ModelInfoRequest* request,
                                                          v1::ModelInfoResponse* response) {
  return Unary("ModelInfo", context, *request,
               [&] { return GetModelInfo(*request, rpc_.model, *response); });
}

grpc::ServerUnaryReactor* LanguageModelService::Score(grpc::CallbackServerContext* context,
                                                      const v1::ScoreRequest* request,
                                                      v1::ScoreResponse* response) {
  return StartScore(context, *request, response, rpc_);
}

grpc::ServerUnaryReactor* LanguageModelService::Tokenize(grpc::CallbackServerContext* context,
                                                         const v1::TokenizeRequest* request,
                                                         v1::TokenizeResponse* response) {
  return Unary("Tokenize", context, *request,
               [&] { return tlm::Tokenize(*request, rpc_.model, *response); });
}

grpc::ServerUnaryReactor* LanguageModelService::Detokenize(grpc::CallbackServerContext* context,
                                                           const v1::DetokenizeRequest* request,
                                                           v1::DetokenizeResponse* response) {
  return Unary("Detokenize", context, *request,
               [&] { return tlm::Detokenize(*request, rpc_.model, *response); });
}

// These take no time worth queueing for: answered on gRPC's own thread.
template <typename Request, typename Answer>
grpc::ServerUnaryReactor* LanguageModelService::Unary(const char* name,
                                                      grpc::CallbackServerContext* context,
                                                      const Request& request, Answer answer) {
  CallRecord record = CallRecord::Begin(name, rpc_.clock);
  const absl::StatusOr<std::string> request_id =
      RequestIdOf(request.request_id(), rpc_.model, rpc_.random);
  record.request_id = request_id.value_or("");
  record.status = request_id.ok() ? answer() : request_id.status();
  LogCall(record);
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(record.status));
  return reactor;
}

}  // namespace tlm
