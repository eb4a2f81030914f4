// Reads the flags of the service around the model: ports, security, logs, metrics, shutdown.
// server/config/service_options.cc is the only source of their defaults and ranges.
#ifndef TLM_SERVER_CONFIG_SERVICE_OPTIONS_H_
#define TLM_SERVER_CONFIG_SERVICE_OPTIONS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/kv_events/zmq_publisher.h"
#include "server/net/listener_options.h"
#include "server/observe/log.h"

namespace tlm {

// The collector that receives spans.
struct OtlpOptions {
  std::string endpoint;  // HOST:PORT; empty: no collector
  bool tls = false;
  std::string ca_file;  // authorities (PEM) of the collector's certificate; empty: the system's
  std::string service_name;
  double sample_ratio = 1;  // share of the traces that begin here, [0, 1]
};

struct ServiceOptions {
  std::string host;
  int port = 0;           // 0: any free port
  std::string port_file;  // empty: no file
  bool listen_while_loading = false;
  std::string admin_host;
  std::optional<int> admin_port;  // nullopt: no admin port; 0: any free port
  std::string admin_port_file;    // empty: no file
  std::string metrics_host;
  std::optional<int> metrics_port;  // nullopt: no metrics port; 0: any free port
  std::string metrics_port_file;    // empty: no file

  TlsFiles tls;               // files of the data port and the admin port
  std::string api_keys_file;  // empty: no keys
  bool reflection = true;
  std::vector<std::string> facades;  // names in server/rpc/facades.h
  ZmqOptions kv_events;
  ConnectionLimits connections;

  OtlpOptions otlp;

  absl::Duration withdrawal_grace;
  absl::Duration drain_timeout;
  absl::Duration stall_timeout;
  std::string log_level;
  LogFormat log_format = LogFormat::kText;
  std::optional<bool> log_calls;  // nullopt: LogsCallsByDefault

  // Returns whether calls need credentials.
  bool credentials_required() const { return !api_keys_file.empty() || !tls.client_ca.empty(); }
  // `certificates` outlive the ports; null: no TLS.
  ListenerOptions data_listener(const TlsCertificates* certificates) const {
    return {host, port, certificates, connections, reflection};
  }
  // Requires an admin_port.
  ListenerOptions admin_listener(const TlsCertificates* certificates) const {
    ListenerOptions admin{admin_host, *admin_port, certificates, connections, reflection};
    // A reserve for monitoring while very many connections arrive.
    admin.extra_connections = 32;
    return admin;
  }
};

// Returns whether an address is reachable only from this machine: 127.0.0.0/8, ::1 or "localhost".
bool IsLoopback(const std::string& host);

// Reads the current flags. INVALID_ARGUMENT names the flag, its value and the range.
absl::StatusOr<ServiceOptions> ReadServiceOptions();

}  // namespace tlm

#endif  // TLM_SERVER_CONFIG_SERVICE_OPTIONS_H_
