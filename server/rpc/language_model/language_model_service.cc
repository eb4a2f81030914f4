#include "server/rpc/language_model/language_model_service.h"

#include <memory>

#include "server/rpc/call/answer_call.h"
#include "server/rpc/call/call_entry.h"
#include "server/rpc/call/raw_message.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/generate/generate_call.h"
#include "server/rpc/language_model/handlers.h"

namespace tlm {
namespace {

static_assert(v1::GenerateRequest::kRequestIdFieldNumber == kRequestIdField &&
              v1::ForwardRequest::kRequestIdFieldNumber == kRequestIdField &&
              v1::ScoreRequest::kRequestIdFieldNumber == kRequestIdField &&
              v1::VerifyRequest::kRequestIdFieldNumber == kRequestIdField &&
              v1::TokenizeRequest::kRequestIdFieldNumber == kRequestIdField &&
              v1::DetokenizeRequest::kRequestIdFieldNumber == kRequestIdField);

class AsItIs final : public GenerateMapping<v1::GenerateRequest, v1::GenerateResponse> {
 public:
  absl::Status Read(v1::GenerateRequest& request, const ServedModel& /*model*/,
                    v1::GenerateRequest& generate) override {
    generate.Swap(&request);
    return absl::OkStatus();
  }
  bool Write(v1::GenerateResponse& event, v1::GenerateResponse& response) override {
    response.Swap(&event);
    return true;
  }
};

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* LanguageModelService::Generate(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  return StartGenerateStream({"Generate"}, context, *request, services_, gate_,
                             std::make_unique<AsItIs>());
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* LanguageModelService::Forward(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  if (!request->Valid()) return new RefusedStream(WithoutMessage());
  const RpcContext* const rpc = gate_.Get();
  if (rpc == nullptr) return new RefusedStream(StartingCall("Forward", *context, services_));
  return StartForward(context, *request, *rpc);
}

grpc::ServerUnaryReactor* LanguageModelService::ModelInfo(grpc::CallbackServerContext* context,
                                                          const v1::ModelInfoRequest* request,
                                                          v1::ModelInfoResponse* response) {
  const RpcContext* const rpc = gate_.Get();
  if (rpc == nullptr) return EndUnary(context, StartingCall("ModelInfo", *context, services_));
  CallRecord record = BeginCall("ModelInfo", Role::kInference, *context, *rpc);
  const absl::StatusOr<std::string> request_id =
      RequestIdOf(request->request_id(), rpc->model, rpc->random);
  record.request_id = request_id.value_or("");
  record.status = record.access;
  record.status.Update(request_id.status());
  if (record.status.ok()) record.status = GetModelInfo(*request, rpc->model, *response);
  return EndUnary(context, record);
}

grpc::ServerUnaryReactor* LanguageModelService::Score(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request,
                                                      grpc::ByteBuffer* response) {
  if (!request->Valid()) return EndWithoutMessage(context);
  const RpcContext* const rpc = gate_.Get();
  if (rpc == nullptr) return EndUnary(context, StartingCall("Score", *context, services_));
  return StartScore(context, *request, response, *rpc);
}

grpc::ServerUnaryReactor* LanguageModelService::Verify(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request,
                                                       grpc::ByteBuffer* response) {
  if (!request->Valid()) return EndWithoutMessage(context);
  const RpcContext* const rpc = gate_.Get();
  if (rpc == nullptr) return EndUnary(context, StartingCall("Verify", *context, services_));
  return StartVerify(context, *request, response, *rpc);
}

grpc::ServerUnaryReactor* LanguageModelService::Tokenize(grpc::CallbackServerContext* context,
                                                         const grpc::ByteBuffer* request,
                                                         grpc::ByteBuffer* response) {
  if (!request->Valid()) return EndWithoutMessage(context);
  const RpcContext* const rpc = gate_.Get();
  if (rpc == nullptr) return EndUnary(context, StartingCall("Tokenize", *context, services_));
  return StartTokenize(context, *request, response, *rpc);
}

grpc::ServerUnaryReactor* LanguageModelService::Detokenize(grpc::CallbackServerContext* context,
                                                           const grpc::ByteBuffer* request,
                                                           grpc::ByteBuffer* response) {
  if (!request->Valid()) return EndWithoutMessage(context);
  const RpcContext* const rpc = gate_.Get();
  if (rpc == nullptr) return EndUnary(context, StartingCall("Detokenize", *context, services_));
  return StartDetokenize(context, *request, response, *rpc);
}

}  // namespace tlm
