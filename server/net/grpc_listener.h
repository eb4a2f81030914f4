// One port that speaks gRPC: what the data port and the admin port have in common.
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

// A gRPC server with services of ours, the health service and reflection. Thread-safe, but for the
// end: StopListening, Withdraw and Shutdown are one thread's.
class GrpcListener {
 public:
  struct NamedService {
    const char* name;  // as the health service knows it
    grpc::Service* service;
  };
  struct Services {
    std::vector<NamedService> services;
    grpc::CallbackGenericService* unknown_calls = nullptr;
  };

  // Takes the port, and refuses connections until Listen; health is NOT_SERVING until SetServing.
  // `services` outlive the listener; `limits` bound the messages. FAILED_PRECONDITION when the port
  // cannot be had.
  static absl::StatusOr<std::unique_ptr<GrpcListener>> Open(const ListenerOptions& options,
                                                            const RequestLimits& limits,
                                                            const Services& services);
  // Shutdown()s at once.
  ~GrpcListener();
  GrpcListener(const GrpcListener&) = delete;
  GrpcListener& operator=(const GrpcListener&) = delete;

  int port() const { return port_; }

  // Lets connections come in. FAILED_PRECONDITION when the system does not. Once.
  absl::Status Listen();

  // What grpc.health.v1 says of the server as a whole and of each service.
  void SetServing(bool serving);

  // New TCP handshakes get no answer, so that clients retry; those in progress finish. Called some
  // time before StopListening, so that no connection is lost that a client has seen established.
  void StopAcceptingSyn() {
    if (acceptor_ != nullptr) acceptor_->StopAcceptingSyn();
  }
  // Closes the port: connections that are there stay, new ones are refused by the system, which
  // balancers take as a reason to go elsewhere. Idempotent.
  void StopListening();
  // StopListening()s and asks clients to go elsewhere (HTTP/2 GOAWAY); calls that run go on.
  // Returns at once. A call that arrives before its client has heard of it ends with CANCELLED.
  // Idempotent.
  void Withdraw();
  // Withdraw()s, gives the calls that run `grace` to end, cancels the rest, cuts the connections
  // that are stuck in a write, and returns when all calls are over. Idempotent.
  void Shutdown(absl::Duration grace);

 private:
  GrpcListener() = default;

  std::vector<const char*> service_names_;
  int port_ = 0;
  // Shared with the builder. Lives longer than the server, which keeps only its inside.
  std::shared_ptr<grpc::ServerCredentials> credentials_;
  std::unique_ptr<grpc::Server> server_;
  // What the acceptor is made of.
  std::optional<ListeningSockets> sockets_;
  std::unique_ptr<ConnectionAcceptor::Server> connections_;
  int64_t descriptor_budget_ = 0;
  int64_t max_streams_ = 0;
  std::unique_ptr<ConnectionAcceptor> acceptor_;  // null until Listen; hands over to server_
  std::future<void> all_calls_over_;              // valid once withdrawn
};

// gRPC's own log goes to ours at level debug: it reports as errors what clients do, and what our
// own statuses say. Once, before anything of gRPC is used.
void RouteGrpcLog();
// What gRPC has to say is dropped from now on: its threads may outlive our log. At the end of the
// process.
void DropGrpcLog();

}  // namespace tlm

#endif  // TLM_SERVER_NET_GRPC_LISTENER_H_
