// Options of a gRPC port.
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
  std::string client_ca;    // authorities of client certificates; empty: none requested
  bool client_certificate_required = true;  // of client_ca

  bool enabled() const { return !certificate.empty(); }
};

// Limits of connections, the same for all ports.
struct ConnectionLimits {
  int max_connections = 16384;        // of all ports together; excess ones are closed at once
  int max_concurrent_streams = 1024;  // of one connection; further calls wait in the client
  // Age at which a connection gets GOAWAY; its calls may finish. Infinite: never.
  absl::Duration max_age = absl::InfiniteDuration();
};

struct ListenerOptions {
  std::string host;
  int port = 0;                                   // 0: any free one
  const TlsCertificates* certificates = nullptr;  // outlive the port; null: no TLS
  ConnectionLimits connections;
  bool reflection = true;
  // In addition to connections.max_connections, for a port that must answer when others are full.
  int extra_connections = 0;
};

}  // namespace tlm

#endif  // TLM_SERVER_NET_LISTENER_OPTIONS_H_
