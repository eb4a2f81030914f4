// The data port: the LanguageModel service with health and reflection.
#ifndef TLM_SERVER_RPC_RPC_SERVER_H_
#define TLM_SERVER_RPC_RPC_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/rpc/grpc_listener.h"
#include "server/rpc/language_model_service.h"
#include "server/rpc/rpc_context.h"
#include "server/rpc/unknown_call_service.h"

namespace tlm {

// Thread-safe after Start.
class RpcServer {
 public:
  // Listens on `host`:`port` as GrpcListener does, with what `rpc` names, which outlives the
  // server.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(const std::string& host, int port,
                                                          const RpcContext& rpc);

  int port() const { return listener_->port(); }
  // What grpc.health.v1 says of the server as a whole and of tlm.v1.LanguageModel.
  void SetServing(bool serving) { listener_->SetServing(serving); }
  // As GrpcListener's.
  void Shutdown(absl::Duration grace) { listener_->Shutdown(grace); }

 private:
  explicit RpcServer(const RpcContext& rpc) : service_(rpc) {}

  LanguageModelService service_;
  UnknownCallService unknown_calls_{UnknownCallService::Port::kData};
  std::unique_ptr<GrpcListener> listener_;  // last: uses the others
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_RPC_SERVER_H_
