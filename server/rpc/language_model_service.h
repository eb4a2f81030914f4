// The gRPC service tlm.v1.LanguageModel: which handler answers which call.
#ifndef TLM_SERVER_RPC_LANGUAGE_MODEL_SERVICE_H_
#define TLM_SERVER_RPC_LANGUAGE_MODEL_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include "server/rpc/call_record.h"
#include "server/rpc/gate.h"
#include "server/rpc/rpc_context.h"
#include "tlm/v1/language_model.grpc.pb.h"

namespace tlm {

// Thread-safe: gRPC calls it from its threads.
class LanguageModelService final : public v1::LanguageModel::CallbackService {
 public:
  // What `services` names and `gate` outlive the service and its calls. Until the gate is open all
  // calls end with UNAVAILABLE, reason STARTING.
  LanguageModelService(const CallServices& services, const RpcGate& gate)
      : services_(services), gate_(gate) {}

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(
      grpc::CallbackServerContext* context, const v1::GenerateRequest* request) override;
  grpc::ServerWriteReactor<v1::ForwardResponse>* Forward(
      grpc::CallbackServerContext* context, const v1::ForwardRequest* request) override;
  grpc::ServerUnaryReactor* ModelInfo(grpc::CallbackServerContext* context,
                                      const v1::ModelInfoRequest* request,
                                      v1::ModelInfoResponse* response) override;
  grpc::ServerUnaryReactor* Score(grpc::CallbackServerContext* context,
                                  const v1::ScoreRequest* request,
                                  v1::ScoreResponse* response) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const v1::TokenizeRequest* request,
                                     v1::TokenizeResponse* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const v1::DetokenizeRequest* request,
                                       v1::DetokenizeResponse* response) override;

 private:
  // The record of a call that comes before there is a model: how it ends.
  CallRecord Starting(const char* name, grpc::CallbackServerContext* context) const;
  // What a call that is answered at once costs its tenant: as much work as the caller likes is one
  // request, what is looked up is nothing.
  enum class Charge { kNothing, kRequest };
  // `answer(model)` fills the response in and says with what status the call ends.
  template <typename Request, typename Answer>
  grpc::ServerUnaryReactor* Unary(const char* name, Charge charge,
                                  grpc::CallbackServerContext* context, const Request& request,
                                  Answer answer);

  const CallServices services_;
  const RpcGate& gate_;
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_LANGUAGE_MODEL_SERVICE_H_
