// Runs the data port: the LanguageModel service, load reports and façades, with health and
// reflection.
#ifndef TLM_SERVER_RPC_RPC_SERVER_H_
#define TLM_SERVER_RPC_RPC_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/net/grpc_listener.h"
#include "server/rpc/call/gate.h"
#include "server/rpc/call/rpc_context.h"
#include "server/rpc/call/unknown_call_service.h"
#include "server/rpc/facades.h"
#include "server/rpc/language_model/language_model_service.h"
#include "server/rpc/load/load_service.h"

namespace tlm {

// Thread-safe after Serve, except for destruction, like GrpcListener.
class RpcServer {
 public:
  // Listens as GrpcListener does; calls end with UNAVAILABLE, reason STARTING, until Serve.
  // `facades`: names that CheckFacades accepts. The objects in `services` outlive the server.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Open(
      const ListenerOptions& options, const CallServices& services,
      const std::vector<std::string>& facades = {});

  // Answers calls with `rpc` from now on; its objects outlive them. Called once.
  void Serve(const RpcContext& rpc) { gate_.Open(rpc); }

  // Sets the status in grpc.health.v1 of the whole server and of each service.
  void SetServing(bool serving) {
    for (const auto& facade : facades_) facade->SetServing(serving);
    listener_->SetServing(serving);
  }
  // Calls GrpcListener::Withdraw() and ends the streams of load reports.
  void Withdraw() {
    listener_->Withdraw();
    load_.EndStreams();
  }
  // The listener, for Listen and Shutdown. SetServing above sets its health.
  GrpcListener& listener() { return *listener_; }

 private:
  explicit RpcServer(const CallServices& services)
      : service_(services, gate_),
        load_(services, gate_),
        unknown_calls_(services, UnknownCallService::Port::kData, ExplainFacadeMethod) {}

  RpcGate gate_;
  LanguageModelService service_;
  LoadService load_;
  std::vector<std::unique_ptr<Facade>> facades_;
  UnknownCallService unknown_calls_;
  std::unique_ptr<GrpcListener> listener_;  // last: it uses the other members
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_RPC_SERVER_H_
