// One port that speaks gRPC: what the data port and the admin port have in common.
#ifndef TLM_SERVER_RPC_GRPC_LISTENER_H_
#define TLM_SERVER_RPC_GRPC_LISTENER_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/rpc/request_limits.h"

namespace tlm {

// A gRPC server with one service of ours, the health service and reflection. Thread-safe.
class GrpcListener {
 public:
  struct Services {
    const char* name = "";  // of `service`, as the health service knows it
    grpc::Service* service = nullptr;
    grpc::CallbackGenericService* unknown_calls = nullptr;
  };

  // Listens on `host`:`port` (0: any free port) without TLS; health is NOT_SERVING until
  // SetServing. `services` outlive the listener; `limits` bound the messages. FAILED_PRECONDITION
  // when the port cannot be had.
  static absl::StatusOr<std::unique_ptr<GrpcListener>> Open(const std::string& host, int port,
                                                            const RequestLimits& limits,
                                                            const Services& services);
  // Shutdown()s at once.
  ~GrpcListener();
  GrpcListener(const GrpcListener&) = delete;
  GrpcListener& operator=(const GrpcListener&) = delete;

  int port() const { return port_; }

  // What grpc.health.v1 says of the server as a whole and of the service.
  void SetServing(bool serving);

  // Accepts nothing more, gives the calls that run `grace` to end, cancels the rest, and returns
  // when all are over. Idempotent.
  void Shutdown(absl::Duration grace);

 private:
  explicit GrpcListener(const char* service_name) : service_name_(service_name) {}

  const char* const service_name_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

// gRPC's own log goes to ours at level debug: it reports as errors what clients do, and what our
// own statuses say. Once, before anything of gRPC is used.
void RouteGrpcLog();

}  // namespace tlm

#endif  // TLM_SERVER_RPC_GRPC_LISTENER_H_
