// Makes channels to servers, with TLS and API keys.
#ifndef TLM_CLIENT_CPP_CHANNEL_H_
#define TLM_CLIENT_CPP_CHANNEL_H_

#include <grpcpp/channel.h>

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "client/cpp/balance.h"

namespace tlm::client {

struct ClientOptions {
  // Encrypt and verify the server. Implied by the three files below.
  bool use_tls = false;
  // PEM file of the trusted CAs; empty = the system's.
  std::string ca_file;
  // PEM files of the client certificate and its key, for mutual TLS: both or neither.
  std::string client_certificate_file;
  std::string client_key_file;
  // Expect this name in the server's certificate instead of the target's host.
  std::string server_name;
  // Sent as `authorization: Bearer <api_key>` with every call.
  std::string api_key;
  // Permits sending api_key unencrypted to other hosts.
  bool allow_plaintext_api_key = false;
  // How Generate calls are distributed over several targets.
  Balance balance = Balance::kRoundRobin;
};

// The port of a target that names none, and the default of tlm-server's --port.
inline constexpr int kDefaultPort = 50051;

// Adds kDefaultPort to a host or an address without a port: "localhost", "10.0.0.1", "[::1]" or
// "::1". Other targets stay as they are, also targets with a scheme ("unix:", "dns:///").
std::string WithDefaultPort(const std::string& target);

// Makes a channel to WithDefaultPort(target): "host:port", "host", "unix:/path", any gRPC target.
// It connects on first use. INVALID_ARGUMENT for options that contradict each other, NOT_FOUND for
// an unreadable file, FAILED_PRECONDITION for an api_key that would leave this host unencrypted.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const std::string& target,
                                                           const ClientOptions& options);

// True if a target is on this host: a loopback address, "localhost" or a Unix socket.
bool IsLocalTarget(std::string_view target);

}  // namespace tlm::client

#endif  // TLM_CLIENT_CPP_CHANNEL_H_
