// How a port that speaks gRPC listens.
#ifndef TLM_SERVER_NET_LISTENER_OPTIONS_H_
#define TLM_SERVER_NET_LISTENER_OPTIONS_H_

#include <string>

#include "absl/time/time.h"

namespace tlm {

class TlsCertificates;

// PEM files; all empty: no TLS.
struct TlsFiles {
  std::string certificate;  // the server's chain, leaf first
  std::string key;          // its private key
  std::string client_ca;  // authorities whose client certificates are taken; empty: none asked for
  bool client_certificate_required = true;  // of client_ca

  bool enabled() const { return !certificate.empty(); }
};

// What connections may do; one set for all ports.
struct ConnectionLimits {
  int max_connections = 16384;        // of all ports together; more are closed at once
  int max_concurrent_streams = 1024;  // of one connection; more wait on the client's side
  // After it a connection is told to go away; its calls may go on for the grace. Infinite: never.
  absl::Duration max_age = absl::InfiniteDuration();
  absl::Duration max_age_grace = absl::InfiniteDuration();
};

struct ListenerOptions {
  std::string host;
  int port = 0;                                   // 0: any free one
  const TlsCertificates* certificates = nullptr;  // outlive the port; null: no TLS
  ConnectionLimits connections;
  bool reflection = true;
  // On top of connections.max_connections, for a port that is to answer when others are full.
  int extra_connections = 0;
};

}  // namespace tlm

#endif  // TLM_SERVER_NET_LISTENER_OPTIONS_H_
