// The gRPC server: one port with the LanguageModel service, health and reflection.
#ifndef TLM_SERVER_RPC_RPC_SERVER_H_
#define TLM_SERVER_RPC_RPC_SERVER_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/rpc/language_model_service.h"
#include "server/rpc/rpc_context.h"
#include "server/rpc/unknown_call_service.h"

namespace tlm {

// Thread-safe after Start.
class RpcServer {
 public:
  // Listens on `host`:`port` (0: any free port) without TLS; the health service says NOT_SERVING
  // until SetServing. FAILED_PRECONDITION when the port cannot be had.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(const std::string& host, int port,
                                                          const RpcContext& rpc);
  // Shutdown()s at once.
  ~RpcServer();

  int port() const { return port_; }

  // What grpc.health.v1 says of the server as a whole and of tlm.v1.LanguageModel.
  void SetServing(bool serving);

  // Accepts nothing more, gives the calls that run `grace` to end, cancels the rest, and returns
  // when all are over. Idempotent.
  void Shutdown(absl::Duration grace);

 private:
  explicit RpcServer(const RpcContext& rpc) : service_(rpc) {}

  LanguageModelService service_;
  UnknownCallService unknown_calls_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

// gRPC's own log goes to ours at level debug: it reports as errors what clients do, and what our
// own statuses say. Once, before anything of gRPC is used.
void RouteGrpcLog();

}  // namespace tlm

#endif  // TLM_SERVER_RPC_RPC_SERVER_H_
