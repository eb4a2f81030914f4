// Implements the façade `oip`: inference.GRPCInferenceService, the Open Inference Protocol.
#ifndef TLM_SERVER_RPC_FACADES_OIP_OIP_FACADE_H_
#define TLM_SERVER_RPC_FACADES_OIP_OIP_FACADE_H_

#include <grpcpp/grpcpp.h>

#include <vector>

#include "inference/open_inference.grpc.pb.h"
#include "server/rpc/facades/facade.h"

namespace tlm {

// ModelInfer has raw messages: see raw_message.h.
using OipMethods = inference::GRPCInferenceService::WithCallbackMethod_ServerLive<
    inference::GRPCInferenceService::WithCallbackMethod_ServerReady<
        inference::GRPCInferenceService::WithCallbackMethod_ModelReady<
            inference::GRPCInferenceService::WithCallbackMethod_ServerMetadata<
                inference::GRPCInferenceService::WithCallbackMethod_ModelMetadata<
                    inference::GRPCInferenceService::WithRawCallbackMethod_ModelInfer<
                        inference::GRPCInferenceService::Service>>>>>>;

// While the model loads, the server is live and not ready.
class OipFacade final : public Facade, public OipMethods {
 public:
  using Facade::Facade;

  std::vector<GrpcListener::NamedService> Services() override {
    return {{inference::GRPCInferenceService::service_full_name(), this}};
  }

  grpc::ServerUnaryReactor* ServerLive(grpc::CallbackServerContext* context,
                                       const inference::ServerLiveRequest* request,
                                       inference::ServerLiveResponse* response) override;
  grpc::ServerUnaryReactor* ServerReady(grpc::CallbackServerContext* context,
                                        const inference::ServerReadyRequest* request,
                                        inference::ServerReadyResponse* response) override;
  grpc::ServerUnaryReactor* ModelReady(grpc::CallbackServerContext* context,
                                       const inference::ModelReadyRequest* request,
                                       inference::ModelReadyResponse* response) override;
  grpc::ServerUnaryReactor* ServerMetadata(grpc::CallbackServerContext* context,
                                           const inference::ServerMetadataRequest* request,
                                           inference::ServerMetadataResponse* response) override;
  grpc::ServerUnaryReactor* ModelMetadata(grpc::CallbackServerContext* context,
                                          const inference::ModelMetadataRequest* request,
                                          inference::ModelMetadataResponse* response) override;
  grpc::ServerUnaryReactor* ModelInfer(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_FACADES_OIP_OIP_FACADE_H_
