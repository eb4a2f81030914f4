// The data port: the LanguageModel service with health and reflection.
#ifndef TLM_SERVER_RPC_RPC_SERVER_H_
#define TLM_SERVER_RPC_RPC_SERVER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/net/grpc_listener.h"
#include "server/rpc/call/gate.h"
#include "server/rpc/call/rpc_context.h"
#include "server/rpc/call/unknown_call_service.h"
#include "server/rpc/language_model/language_model_service.h"
#include "server/rpc/oip/oip_service.h"

namespace tlm {

// Thread-safe after Serve, but for the end, as GrpcListener.
class RpcServer {
 public:
  // Listens as GrpcListener does, with the Open Inference Protocol too if `oip`; calls end with
  // UNAVAILABLE, reason STARTING, until Serve. What `services` names outlives the server.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Open(const ListenerOptions& options,
                                                         const CallServices& services,
                                                         bool oip = false);

  // Calls are answered from now on, with `rpc`, whose objects outlive them. Once.
  void Serve(const RpcContext& rpc) { gate_.Open(rpc); }

  // The status in grpc.health.v1 of the server as a whole and of tlm.v1.LanguageModel.
  void SetServing(bool serving) {
    oip_.SetServing(serving);
    listener_->SetServing(serving);
  }
  // The port itself: Listen, Withdraw, Shutdown. Its health is set by SetServing above.
  GrpcListener& listener() { return *listener_; }

 private:
  explicit RpcServer(const CallServices& services)
      : service_(services, gate_),
        oip_(services, gate_),
        unknown_calls_(services, UnknownCallService::Port::kData) {}

  RpcGate gate_;
  LanguageModelService service_;
  OipService oip_;
  UnknownCallService unknown_calls_;
  std::unique_ptr<GrpcListener> listener_;  // last: uses the others
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_RPC_SERVER_H_
