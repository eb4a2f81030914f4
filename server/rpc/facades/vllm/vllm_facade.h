// Implements the façade `vllm`: vllm.grpc.engine.VllmEngine, for the SMG gateway and llm-d.
#ifndef TLM_SERVER_RPC_FACADES_VLLM_VLLM_FACADE_H_
#define TLM_SERVER_RPC_FACADES_VLLM_VLLM_FACADE_H_

#include <grpcpp/grpcpp.h>

#include <vector>

#include "absl/time/time.h"
#include "server/rpc/facades/facade.h"
#include "server/rpc/facades/vllm/tokenizer_archive.h"
#include "vllm/grpc/engine/vllm_engine.grpc.pb.h"

namespace tlm {

using VllmEngineService = ::vllm::grpc::engine::VllmEngine;
// Generate has raw messages: see raw_message.h.
using VllmMethods = VllmEngineService::WithRawCallbackMethod_Generate<
    VllmEngineService::WithCallbackMethod_Embed<VllmEngineService::WithCallbackMethod_HealthCheck<
        VllmEngineService::WithCallbackMethod_Abort<
            VllmEngineService::WithCallbackMethod_GetModelInfo<
                VllmEngineService::WithCallbackMethod_GetServerInfo<
                    VllmEngineService::WithCallbackMethod_GetLoads<
                        VllmEngineService::WithCallbackMethod_GetTokenizer<
                            VllmEngineService::WithCallbackMethod_SubscribeKvEvents<
                                VllmEngineService::Service>>>>>>>>>;

class VllmFacade final : public Facade, public VllmMethods {
 public:
  VllmFacade(const CallServices& services, const RpcGate& gate)
      : Facade(services, gate), begin_(services.clock.Now()) {}

  std::vector<GrpcListener::NamedService> Services() override {
    return {{VllmEngineService::service_full_name(), this}};
  }

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Generate(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* Embed(grpc::CallbackServerContext* context,
                                  const ::vllm::grpc::engine::EmbedRequest* request,
                                  ::vllm::grpc::engine::EmbedResponse* response) override;
  grpc::ServerUnaryReactor* HealthCheck(
      grpc::CallbackServerContext* context, const ::vllm::grpc::engine::HealthCheckRequest* request,
      ::vllm::grpc::engine::HealthCheckResponse* response) override;
  grpc::ServerUnaryReactor* Abort(grpc::CallbackServerContext* context,
                                  const ::vllm::grpc::engine::AbortRequest* request,
                                  ::vllm::grpc::engine::AbortResponse* response) override;
  grpc::ServerUnaryReactor* GetModelInfo(
      grpc::CallbackServerContext* context,
      const ::vllm::grpc::engine::GetModelInfoRequest* request,
      ::vllm::grpc::engine::GetModelInfoResponse* response) override;
  grpc::ServerUnaryReactor* GetServerInfo(
      grpc::CallbackServerContext* context,
      const ::vllm::grpc::engine::GetServerInfoRequest* request,
      ::vllm::grpc::engine::GetServerInfoResponse* response) override;
  grpc::ServerUnaryReactor* GetLoads(grpc::CallbackServerContext* context,
                                     const ::vllm::grpc::engine::GetLoadsRequest* request,
                                     ::vllm::grpc::engine::GetLoadsResponse* response) override;
  grpc::ServerWriteReactor<::smg::grpc::common::GetTokenizerChunk>* GetTokenizer(
      grpc::CallbackServerContext* context,
      const ::smg::grpc::common::GetTokenizerRequest* request) override;
  grpc::ServerWriteReactor<::smg::grpc::common::KvEventBatch>* SubscribeKvEvents(
      grpc::CallbackServerContext* context,
      const ::smg::grpc::common::SubscribeKvEventsRequest* request) override;

 private:
  const absl::Time begin_;
  TokenizerArchives archives_;
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_FACADES_VLLM_VLLM_FACADE_H_
