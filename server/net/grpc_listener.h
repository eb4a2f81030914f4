// Opens a gRPC port: the common part of the data port and the admin port.
#ifndef TLM_SERVER_NET_GRPC_LISTENER_H_
#define TLM_SERVER_NET_GRPC_LISTENER_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <future>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/net/connection_acceptor.h"
#include "server/net/listener_options.h"
#include "server/serving/request_limits.h"

namespace tlm {

// A gRPC server with the given services, the health service and reflection. Thread-safe, except
// that StopListening, Withdraw and Shutdown are called by one thread.
class GrpcListener {
 public:
  struct NamedService {
    const char* name;  // its name in the health service
    grpc::Service* service;
  };
  struct Services {
    std::vector<NamedService> services;
    grpc::CallbackGenericService* unknown_calls = nullptr;
  };

  // Binds the port, and refuses connections until Listen; health is NOT_SERVING until SetServing.
  // `services` outlive the listener; `limits` limit the message sizes. FAILED_PRECONDITION when the
  // port cannot be bound.
  static absl::StatusOr<std::unique_ptr<GrpcListener>> Open(const ListenerOptions& options,
                                                            const RequestLimits& limits,
                                                            const Services& services);
  // Calls Shutdown without a grace period.
  ~GrpcListener();
  GrpcListener(const GrpcListener&) = delete;
  GrpcListener& operator=(const GrpcListener&) = delete;

  int port() const { return port_; }

  // Accepts connections from now on. FAILED_PRECONDITION when the system refuses. Called once.
  absl::Status Listen();

  // Sets the status in grpc.health.v1 of the whole server and of each service.
  void SetServing(bool serving);

  // Ignores new TCP handshakes, so that clients retry; handshakes in progress finish. Call some
  // time before StopListening, so that no connection is lost that a client considers established.
  void StopAcceptingSyn() {
    if (acceptor_ != nullptr) acceptor_->StopAcceptingSyn();
  }
  // Closes the port: open connections stay; the system refuses new ones, so that balancers try
  // another replica. Idempotent.
  void StopListening();
  // Calls StopListening and sends HTTP/2 GOAWAY; running calls continue. Returns at once. A call
  // that crosses the GOAWAY ends with CANCELLED. Idempotent.
  void Withdraw();
  // Calls Withdraw, waits up to `grace` for running calls, cancels the others, cuts connections
  // that are stuck in a write, and returns when all calls have ended. Idempotent.
  void Shutdown(absl::Duration grace);

 private:
  GrpcListener() = default;

  std::vector<const char*> service_names_;
  int port_ = 0;
  // Shared with the builder. Outlives the server, which keeps only a part of it.
  std::shared_ptr<grpc::ServerCredentials> credentials_;
  std::unique_ptr<grpc::Server> server_;
  // Arguments of the acceptor.
  std::optional<ListeningSockets> sockets_;
  std::unique_ptr<ConnectionAcceptor::Server> connections_;
  int64_t descriptor_budget_ = 0;
  int64_t max_streams_ = 0;
  std::unique_ptr<ConnectionAcceptor> acceptor_;  // null until Listen; feeds server_
  std::future<void> all_calls_over_;              // valid once withdrawn
};

// Redirects gRPC's log to the server's, at level debug, because gRPC reports actions of clients as
// errors and repeats statuses. Call once, before any use of gRPC.
void RouteGrpcLog();
// Drops gRPC's log from now on, because gRPC's threads may outlive the server's log. Call at the
// end of the process.
void DropGrpcLog();

}  // namespace tlm

#endif  // TLM_SERVER_NET_GRPC_LISTENER_H_
