// Implements the façade `openengine`: openengine.v1.Inference and .Control, as the trtllm sidecar
// of NVIDIA Dynamo uses them.
#ifndef TLM_SERVER_RPC_FACADES_OPENENGINE_OPENENGINE_FACADE_H_
#define TLM_SERVER_RPC_FACADES_OPENENGINE_OPENENGINE_FACADE_H_

#include <grpcpp/grpcpp.h>

#include <string>
#include <vector>

#include "openengine/v1/openengine.grpc.pb.h"
#include "server/rpc/facades/facade.h"
#include "server/rpc/facades/openengine/openengine_model.h"

namespace tlm {

// Generate has raw messages: see raw_message.h.
using OpenEngineInference =
    openengine::Inference::WithRawCallbackMethod_Generate<openengine::Inference::Service>;

class OpenEngineFacade final : public Facade,
                               public OpenEngineInference,
                               public openengine::Control::CallbackService {
 public:
  OpenEngineFacade(const CallServices& services, const RpcGate& gate);

  std::vector<GrpcListener::NamedService> Services() override;

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Generate(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request) override;

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const openengine::GetServerInfoRequest* request,
                                          openengine::ServerInfo* response) override;
  grpc::ServerUnaryReactor* GetModelInfo(grpc::CallbackServerContext* context,
                                         const openengine::GetModelInfoRequest* request,
                                         openengine::ModelInfo* response) override;
  grpc::ServerUnaryReactor* GetLoad(grpc::CallbackServerContext* context,
                                    const openengine::GetLoadRequest* request,
                                    openengine::LoadInfo* response) override;
  grpc::ServerUnaryReactor* Health(grpc::CallbackServerContext* context,
                                   const openengine::HealthRequest* request,
                                   openengine::HealthResponse* response) override;
  grpc::ServerUnaryReactor* Abort(grpc::CallbackServerContext* context,
                                  const openengine::AbortRequest* request,
                                  openengine::AbortResponse* response) override;
  grpc::ServerUnaryReactor* GetKvEventSources(
      grpc::CallbackServerContext* context, const openengine::GetKvEventSourcesRequest* request,
      openengine::GetKvEventSourcesResponse* response) override;

 private:
  const std::string instance_id_;
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_FACADES_OPENENGINE_OPENENGINE_FACADE_H_
