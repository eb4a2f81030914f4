// Defines the options of a gRPC port.
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
  bool client_certificate_required = true;  // only with client_ca

  bool enabled() const { return !certificate.empty(); }
};

// Limits of connections, the same for all ports.
struct ConnectionLimits {
  int max_connections = 16384;        // total of all ports; excess ones are closed at once
  int max_concurrent_streams = 1024;  // per connection; further calls wait in the client
  // Age at which a connection gets GOAWAY; its calls may finish. Infinite: never.
  absl::Duration max_age = absl::InfiniteDuration();
};

struct ListenerOptions {
  std::string host;
  int port = 0;                                   // 0: any free port
  const TlsCertificates* certificates = nullptr;  // outlives the port; null: no TLS
  ConnectionLimits connections;
  bool reflection = true;
  // Added to connections.max_connections for a port that must answer when others are full.
  int extra_connections = 0;
};

}  // namespace tlm

#endif  // TLM_SERVER_NET_LISTENER_OPTIONS_H_
