// Serves tlm.v1.LanguageModel: dispatches calls to handlers.
#ifndef TLM_SERVER_RPC_LANGUAGE_MODEL_LANGUAGE_MODEL_SERVICE_H_
#define TLM_SERVER_RPC_LANGUAGE_MODEL_LANGUAGE_MODEL_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include "server/rpc/call/gate.h"
#include "server/rpc/call/rpc_context.h"
#include "tlm/v1/language_model.grpc.pb.h"

namespace tlm {

// Calls that need work have raw requests: see raw_message.h.
using LanguageModelMethods = v1::LanguageModel::WithRawCallbackMethod_Generate<
    v1::LanguageModel::WithRawCallbackMethod_Forward<v1::LanguageModel::WithRawCallbackMethod_Score<
        v1::LanguageModel::WithRawCallbackMethod_Tokenize<
            v1::LanguageModel::WithRawCallbackMethod_Detokenize<
                v1::LanguageModel::WithRawCallbackMethod_Verify<
                    v1::LanguageModel::WithCallbackMethod_ModelInfo<
                        v1::LanguageModel::Service>>>>>>>;

// Thread-safe: gRPC calls it from its threads.
class LanguageModelService final : public LanguageModelMethods {
 public:
  // The objects in `services` and `gate` outlive the service and its calls. Until the gate is open
  // all calls end with UNAVAILABLE, reason STARTING.
  LanguageModelService(const CallServices& services, const RpcGate& gate)
      : services_(services), gate_(gate) {}

  // Streams started, prompt*, (tokens | finished)*, summary. While a write is in flight, tokens
  // accumulate and are sent together.
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Generate(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Forward(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* ModelInfo(grpc::CallbackServerContext* context,
                                      const v1::ModelInfoRequest* request,
                                      v1::ModelInfoResponse* response) override;
  grpc::ServerUnaryReactor* Score(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Verify(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;

 private:
  const CallServices services_;
  const RpcGate& gate_;
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_LANGUAGE_MODEL_LANGUAGE_MODEL_SERVICE_H_
