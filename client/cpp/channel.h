// Where a client connects to, and as whom.
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
  // PEM file of the authorities to trust; empty = the system's.
  std::string ca_file;
  // PEM files of this client's certificate and key, for servers that ask for one: both or neither.
  std::string client_certificate_file;
  std::string client_key_file;
  // Expect this name in the server's certificate instead of the target's host.
  std::string server_name;
  // Sent as `authorization: Bearer <api_key>` with every call.
  std::string api_key;
  // Let api_key travel unencrypted to hosts other than this one.
  bool allow_plaintext_api_key = false;
  // How Generate calls are spread over several targets.
  Balance balance = Balance::kRoundRobin;
};

// A channel to `target` ("host:port", "unix:/path", any gRPC target); connects when first used.
// INVALID_ARGUMENT for options that contradict each other, NOT_FOUND for a file that cannot be
// read, FAILED_PRECONDITION for an api_key that would leave this host unencrypted.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const std::string& target,
                                                           const ClientOptions& options);

// Whether a target names this very host: a loopback address, "localhost" or a Unix socket.
bool IsLocalTarget(std::string_view target);

}  // namespace tlm::client

#endif  // TLM_CLIENT_CPP_CHANNEL_H_
