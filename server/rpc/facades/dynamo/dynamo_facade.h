// Implements the façade `dynamo`: vllm.Inference and vllm.Control, as the vllm sidecar of NVIDIA
// Dynamo uses them.
#ifndef TLM_SERVER_RPC_FACADES_DYNAMO_DYNAMO_FACADE_H_
#define TLM_SERVER_RPC_FACADES_DYNAMO_DYNAMO_FACADE_H_

#include <grpcpp/grpcpp.h>

#include <string>
#include <vector>

#include "server/rpc/facades/facade.h"
#include "vllm/control.grpc.pb.h"
#include "vllm/inference.grpc.pb.h"

namespace tlm {

// Its methods have raw messages: see raw_message.h.
using DynamoInferenceMethods = vllm::Inference::WithRawCallbackMethod_Generate<
    vllm::Inference::WithRawCallbackMethod_GenerateStream<vllm::Inference::Service>>;

class DynamoFacade final : public Facade,
                           public DynamoInferenceMethods,
                           public vllm::Control::CallbackService {
 public:
  DynamoFacade(const CallServices& services, const RpcGate& gate);

  std::vector<GrpcListener::NamedService> Services() override;

  grpc::ServerUnaryReactor* Generate(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerateStream(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) override;

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const vllm::GetServerInfoRequest* request,
                                          vllm::ServerInfo* response) override;
  grpc::ServerUnaryReactor* GetModelInfo(grpc::CallbackServerContext* context,
                                         const vllm::GetModelInfoRequest* request,
                                         vllm::ModelInfo* response) override;
  grpc::ServerUnaryReactor* Abort(grpc::CallbackServerContext* context,
                                  const vllm::AbortRequest* request,
                                  vllm::AbortResponse* response) override;
  grpc::ServerUnaryReactor* GetKvEventSources(grpc::CallbackServerContext* context,
                                              const vllm::GetKvEventSourcesRequest* request,
                                              vllm::GetKvEventSourcesResponse* response) override;

 private:
  const std::string instance_id_;
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_FACADES_DYNAMO_DYNAMO_FACADE_H_
