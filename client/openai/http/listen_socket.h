// Opens the listening socket.
#ifndef TLM_CLIENT_OPENAI_HTTP_LISTEN_SOCKET_H_
#define TLM_CLIENT_OPENAI_HTTP_LISTEN_SOCKET_H_

#include <string>

#include "absl/status/statusor.h"

namespace tlm::openai {

// Returns a listening TCP socket, which the caller closes. INVALID_ARGUMENT for an unknown host,
// UNAVAILABLE, naming address and reason, if it cannot listen there.
absl::StatusOr<int> ListenOn(const std::string& host, int port);

// Returns the port of a socket.
int PortOf(int socket);

// True if an address is reachable only from this machine: 127.0.0.0/8, ::1 or "localhost".
bool IsLoopback(const std::string& host);

}  // namespace tlm::openai

#endif  // TLM_CLIENT_OPENAI_HTTP_LISTEN_SOCKET_H_
