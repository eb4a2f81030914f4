#include "server/rpc/language_model/language_model_service.h"

#include "server/rpc/call/call_entry.h"
#include "server/rpc/call/refused_call.h"
#include "server/rpc/call/status_mapping.h"
#include "server/rpc/convert/convert.h"
#include "server/rpc/language_model/handlers.h"

namespace tlm {

grpc::ServerWriteReactor<grpc::ByteBuffer>* LanguageModelService::Generate(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  if (!request->Valid()) return new RefusedStream(WithoutMessage());
  const RpcContext* const rpc = gate_.Get();
  if (rpc == nullptr) return new RefusedStream(Starting("Generate", context));
  return StartGenerate(context, *request, *rpc);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* LanguageModelService::Forward(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  if (!request->Valid()) return new RefusedStream(WithoutMessage());
  const RpcContext* const rpc = gate_.Get();
  if (rpc == nullptr) return new RefusedStream(Starting("Forward", context));
  return StartForward(context, *request, *rpc);
}

grpc::ServerUnaryReactor* LanguageModelService::ModelInfo(grpc::CallbackServerContext* context,
                                                          const v1::ModelInfoRequest* request,
                                                          v1::ModelInfoResponse* response) {
  const RpcContext* const rpc = gate_.Get();
  if (rpc == nullptr) return EndUnary(context, Starting("ModelInfo", context));
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
  if (rpc == nullptr) return EndUnary(context, Starting("Score", context));
  return StartScore(context, *request, response, *rpc);
}

grpc::ServerUnaryReactor* LanguageModelService::Tokenize(grpc::CallbackServerContext* context,
                                                         const grpc::ByteBuffer* request,
                                                         grpc::ByteBuffer* response) {
  if (!request->Valid()) return EndWithoutMessage(context);
  const RpcContext* const rpc = gate_.Get();
  if (rpc == nullptr) return EndUnary(context, Starting("Tokenize", context));
  return StartTokenize(context, *request, response, *rpc);
}

grpc::ServerUnaryReactor* LanguageModelService::Detokenize(grpc::CallbackServerContext* context,
                                                           const grpc::ByteBuffer* request,
                                                           grpc::ByteBuffer* response) {
  if (!request->Valid()) return EndWithoutMessage(context);
  const RpcContext* const rpc = gate_.Get();
  if (rpc == nullptr) return EndUnary(context, Starting("Detokenize", context));
  return StartDetokenize(context, *request, response, *rpc);
}

CallRecord LanguageModelService::Starting(const char* name,
                                          grpc::CallbackServerContext* context) const {
  CallRecord record = BeginCall(name, Role::kInference, *context, services_);
  record.status = record.access.ok() ? StartingStatus() : record.access;
  return record;
}

}  // namespace tlm
