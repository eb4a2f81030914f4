// The gRPC service inference.GRPCInferenceService: the Open Inference Protocol.
#ifndef TLM_SERVER_RPC_OIP_OIP_SERVICE_H_
#define TLM_SERVER_RPC_OIP_OIP_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <atomic>

#include "inference/open_inference.grpc.pb.h"
#include "server/rpc/call/gate.h"
#include "server/rpc/call/rpc_context.h"

namespace tlm {

// Thread-safe: gRPC calls it from its threads.
class OipService final : public inference::GRPCInferenceService::CallbackService {
 public:
  // What `services` names and `gate` outlive the service and its calls. Until the gate is open it
  // is alive and not ready.
  OipService(const CallServices& services, const RpcGate& gate)
      : services_(services), gate_(gate) {}

  // The answer of ServerReady and ModelReady.
  void SetServing(bool serving) { serving_ = serving; }

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
                                       const inference::ModelInferRequest* request,
                                       inference::ModelInferResponse* response) override;

 private:
  // Answers a call that needs credentials and a model; `answer(rpc)` returns its status.
  template <typename Answer>
  grpc::ServerUnaryReactor* Ask(const char* name, grpc::CallbackServerContext* context,
                                Answer answer);

  const CallServices services_;
  const RpcGate& gate_;
  std::atomic<bool> serving_{false};
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_OIP_OIP_SERVICE_H_
