// Owns the TCP sockets of one port, without gRPC.
#ifndef TLM_SERVER_NET_LISTENING_SOCKETS_H_
#define TLM_SERVER_NET_LISTENING_SOCKETS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace tlm {

// Owns the non-blocking descriptors. Move-only.
class ListeningSockets {
 public:
  // Binds the port on every address of this machine that `host` resolves to; port 0 picks one that
  // is free on all. "::" includes IPv4. From then on no other process can bind the port;
  // connections are refused until Listen(). FAILED_PRECONDITION names address, port and the
  // system's reason when an address is in use or not permitted, or `host` is not an address.
  static absl::StatusOr<ListeningSockets> Open(const std::string& host, int port);

  ListeningSockets(ListeningSockets&& other) noexcept
      : host_(std::move(other.host_)),
        descriptors_(std::exchange(other.descriptors_, {})),
        port_(other.port_) {}
  ListeningSockets& operator=(ListeningSockets&& other) = delete;
  ~ListeningSockets() { Close(); }

  int port() const { return port_; }
  const std::vector<int>& descriptors() const { return descriptors_; }
  // Accepts connections. FAILED_PRECONDITION as for Open.
  absl::Status Listen();
  // Drops the SYN of new TCP handshakes, so that clients retry after a second; handshakes in
  // progress finish.
  void StopAcceptingSyn();
  // Refuses connections from now on. Idempotent.
  void Close();

 private:
  ListeningSockets(const std::string& host, int port) : host_(host), port_(port) {}

  std::string host_;  // for messages
  std::vector<int> descriptors_;
  int port_ = 0;
};

}  // namespace tlm

#endif  // TLM_SERVER_NET_LISTENING_SOCKETS_H_
