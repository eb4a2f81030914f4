#include "server/config/service_options.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <string_view>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "model/base/errors.h"
#include "model/base/json.h"
#include "server/config/flag_types.h"

ABSL_FLAG(std::string, host, "127.0.0.1",
          "address of the data port; other than loopback it needs --tls_cert or --insecure. Set it "
          "when clients are on other machines");
ABSL_FLAG(int, port, 50051,
          "TCP port of the data port, 0 to 65535; 0 = any free one. Set it when several servers "
          "share a machine");
ABSL_FLAG(std::string, port_file, "",
          "FILE that receives the number of the data port once the server serves; empty = none. "
          "FILE.admin receives the number of the admin port shortly before, FILE.metrics the "
          "number of the metrics port once it is open. The server removes them when it ends. Set "
          "it in scripts that start servers with --port=0");
ABSL_FLAG(bool, listen_while_loading, false,
          "accept connections on --port while the model is loaded: health answers NOT_SERVING, and "
          "calls end with UNAVAILABLE. By default connections are refused until the server serves, "
          "so that every balancer tries another replica. Set it when health checks must tell a "
          "server that loads from a dead one");
ABSL_FLAG(int, admin_port, -1,
          "TCP port of the Admin service, 0 to 65535; 0 = any free one, -1 = none. Set it to "
          "drain, abort and see the load with tlm admin");
ABSL_FLAG(std::string, admin_host, "127.0.0.1",
          "address of the admin port; other than loopback it needs --tls_cert and credentials, or "
          "--insecure. Set it when administrators are on other machines");
ABSL_FLAG(int, metrics_port, -1,
          "TCP port of /metrics, /healthz and /readyz over HTTP, 0 to 65535; 0 = any free one, -1 "
          "= none. Set it for Prometheus and for the probes of an orchestrator");
ABSL_FLAG(std::string, metrics_host, "127.0.0.1",
          "address of the metrics port; other than loopback it needs --metrics_insecure. Set it "
          "when Prometheus or the probes come from other machines");
ABSL_FLAG(bool, metrics_insecure, false,
          "allow --metrics_host to be other than loopback, though the metrics port has neither "
          "encryption nor credentials. Set it when a firewall or network policy protects the port");
ABSL_FLAG(tlm::PathOrNone, tls_cert, {},
          "PEM file of the server's certificate chain, leaf first; reloaded when it changes. With "
          "--tls_key it enables TLS on the data port and the admin port. Set it when calls cross a "
          "network");
ABSL_FLAG(tlm::PathOrNone, tls_key, {}, "PEM file of the private key of --tls_cert. Set both");
ABSL_FLAG(tlm::PathOrNone, tls_client_ca, {},
          "PEM file of the authorities of client certificates; clients must then present one. Set "
          "it when clients prove their identity by certificates");
ABSL_FLAG(std::string, tls_client_auth, "require",
          "with --tls_client_ca: require, or optional for clients with an API key instead. Set "
          "optional when some clients have only a key");
ABSL_FLAG(tlm::PathOrNone, api_keys, {},
          "file of salted hashes of API keys, written by tlm-keys; reloaded when it changes. Every "
          "call then needs a key, or a certificate that the file names. Set it when tenants have "
          "credentials, limits or roles");
ABSL_FLAG(bool, insecure, false,
          "allow addresses other than loopback without TLS. Set it in networks that are trusted or "
          "encrypt by themselves, such as a service mesh");
ABSL_FLAG(std::string, reflection, "auto",
          "answer server reflection: on, off, or auto for on unless calls need credentials. Set on "
          "when users with keys explore the services with grpcurl, off to hide them");
ABSL_FLAG(std::vector<std::string>, facades, {},
          "other protocols to answer on --port, separated by commas: dynamo (vllm.Inference and "
          "vllm.Control, for NVIDIA Dynamo's vllm sidecar), oip (the Open Inference Protocol of "
          "KServe), openengine (openengine.v1, for Dynamo's trtllm sidecar), vllm "
          "(vllm.grpc.engine.VllmEngine, for the SMG gateway and llm-d). Set it for these "
          "gateways, and for OpenAI clients behind them");
ABSL_FLAG(std::string, kv_events_endpoint, "",
          "ZMQ endpoint (PUB, in vLLM's format) that publishes which blocks the prefix cache "
          "holds, with their tokens: tcp://HOST:PORT (PORT * = any free one) or ipc://PATH; empty "
          "= none. It has neither encryption nor credentials: not together with --api_keys or "
          "--tls_client_ca, and on other than loopback it needs --insecure. Set it for routers "
          "that choose replicas by cached prefix, such as llm-d and Dynamo");
ABSL_FLAG(
    std::string, kv_events_replay_endpoint, "",
    "with --kv_events_endpoint: ZMQ endpoint (ROUTER, as vLLM has it) at which subscribers get "
    "earlier events again; empty = none. Set it for routers that start later or lose messages");
ABSL_FLAG(std::string, kv_events_topic, "",
          "topic of the messages of --kv_events_endpoint. Set it as the router subscribes: llm-d "
          "to kv@POD@MODEL");
ABSL_FLAG(int, max_connections, 16384,
          "connections of all ports together, 1 to 1048576, as far as the system's limit of open "
          "files allows; excess connections are closed at once. Set it higher for more clients, "
          "lower when descriptors run out");
ABSL_FLAG(int, max_concurrent_streams, 1024,
          "calls of one connection at once, 1 to 65536; further calls wait in the client. Set it "
          "higher when a gateway sends all its calls over one connection");
ABSL_FLAG(absl::Duration, max_connection_age, absl::InfiniteDuration(),
          "age at which the server asks a client to reconnect, so that clients spread over new "
          "replicas; such as 30m; inf = never. Set it when a balancer distributes connections, as "
          "a Kubernetes Service does");
ABSL_FLAG(std::string, otlp_endpoint, "",
          "HOST:PORT of an OpenTelemetry collector that receives a trace of every sampled call "
          "over OTLP/gRPC; encrypted unless HOST is a loopback address; empty = none. Set it to "
          "see calls in a tracing system");
ABSL_FLAG(
    tlm::PathOrNone, otlp_ca, {},
    "PEM file of the authorities of the collector's certificate, for TLS on a loopback address, "
    "too; none = the authorities of the system. Set it when the collector's authority is private");
ABSL_FLAG(bool, otlp_insecure, false,
          "send traces unencrypted to an address other than loopback. Set it when the collector "
          "has no TLS and the network is trusted");
ABSL_FLAG(std::string, otlp_service_name, "tlm",
          "service.name of the traces. Set it when several deployments share a collector");
ABSL_FLAG(double, otlp_sample_ratio, 1.0,
          "share of the calls without a traceparent that are traced, 0 to 1; others are traced if "
          "their traceparent says so. Set it lower when traces of all calls are too many");
ABSL_FLAG(absl::Duration, withdrawal_grace, absl::Seconds(5),
          "time after SIGTERM or Admin.Drain in which health reports NOT_SERVING and calls are "
          "still accepted, for balancers to notice; SIGINT skips it. Set it longer than the check "
          "interval of the balancer, 0 without one");
ABSL_FLAG(absl::Duration, drain_timeout, absl::Seconds(30),
          "time for running requests to finish after the grace, such as 30s or 2m. Set it to the "
          "length of the longest streams");
ABSL_FLAG(
    absl::Duration, stall_timeout, absl::Minutes(2),
    "the server reports NOT_SERVING while a step takes longer than this, such as 30s or 2m. Set it "
    "lower when another replica should take over sooner, higher when steps are that long");
ABSL_FLAG(
    std::string, log_level, "info",
    "debug, info, warn, error or off. Set warn to keep the log small, debug to examine a fault");
ABSL_FLAG(std::string, log_format, "text",
          "text, or json for one object per line. Set json when a program reads the log");
ABSL_FLAG(tlm::AutoSwitch, log_calls, {},
          "log a line per call, of level info: true, false, or auto for true unless standard error "
          "is a terminal. With --log_format=json auto is true: such lines are read by programs, at "
          "a terminal too, such as that of a container. Set it false when traces record the calls, "
          "true to see them at a terminal");

namespace tlm {
namespace {

// Addresses other than loopback need TLS, or --insecure.
absl::Status CheckHost(std::string_view flag, const std::string& host, const TlsFiles& tls) {
  if (host.empty()) return InvalidArgument("--{} is empty", flag);
  if (IsLoopback(host) || tls.enabled() || absl::GetFlag(FLAGS_insecure)) return absl::OkStatus();
  return InvalidArgument(
      "--{} is {}, not a loopback address: give --tls_cert and --tls_key, or --insecure to serve "
      "it unencrypted",
      flag, host);
}

// Without credentials TLS encrypts, but admits every client.
absl::Status CheckAdministrators(const ServiceOptions& options) {
  const bool reachable = options.admin_port.has_value() && !IsLoopback(options.admin_host);
  if (!reachable || options.credentials_required() || absl::GetFlag(FLAGS_insecure)) {
    return absl::OkStatus();
  }
  return InvalidArgument(
      "--admin_host is {}, not a loopback address: give --api_keys, or --insecure to let every "
      "client administer this server",
      options.admin_host);
}

// Reads a port that is off by default; -1 means no port.
absl::Status ReadOptionalPort(std::string_view flag, int port, std::optional<int>* out) {
  TLM_RETURN_IF_ERROR(CheckRange(flag, port, -1, 65535));
  if (port >= 0) *out = port;
  return absl::OkStatus();
}

absl::Status ReadTls(TlsFiles* tls) {
  tls->certificate = absl::GetFlag(FLAGS_tls_cert).path;
  tls->key = absl::GetFlag(FLAGS_tls_key).path;
  tls->client_ca = absl::GetFlag(FLAGS_tls_client_ca).path;
  if (tls->certificate.empty() != tls->key.empty()) {
    return InvalidArgument("--tls_cert and --tls_key are given together: --tls_{} is missing",
                           tls->key.empty() ? "key" : "cert");
  }
  if (!tls->client_ca.empty() && !tls->enabled()) {
    return InvalidArgument("--tls_client_ca={} needs --tls_cert and --tls_key", tls->client_ca);
  }
  const std::string auth = absl::GetFlag(FLAGS_tls_client_auth);
  if (auth != "require" && auth != "optional") {
    return InvalidArgument("--tls_client_auth is {}, it may be require or optional", auth);
  }
  if (auth == "optional" && tls->client_ca.empty()) {
    return InvalidArgument("--tls_client_auth is optional, which needs --tls_client_ca");
  }
  tls->client_certificate_required = auth == "require";
  return absl::OkStatus();
}

absl::Status ReadSecurity(ServiceOptions* options) {
  TLM_RETURN_IF_ERROR(ReadTls(&options->tls));
  options->api_keys_file = absl::GetFlag(FLAGS_api_keys).path;
  const std::string reflection = absl::GetFlag(FLAGS_reflection);
  if (reflection != "auto" && reflection != "on" && reflection != "off") {
    return InvalidArgument("--reflection is {}, it may be auto, on or off", reflection);
  }
  options->reflection =
      reflection == "on" || (reflection == "auto" && !options->credentials_required());
  return absl::OkStatus();
}

absl::Status ReadPorts(ServiceOptions* options) {
  options->host = absl::GetFlag(FLAGS_host);
  options->port = absl::GetFlag(FLAGS_port);
  options->port_file = absl::GetFlag(FLAGS_port_file);
  options->listen_while_loading = absl::GetFlag(FLAGS_listen_while_loading);
  options->admin_host = absl::GetFlag(FLAGS_admin_host);
  options->metrics_host = absl::GetFlag(FLAGS_metrics_host);
  TLM_RETURN_IF_ERROR(CheckRange("port", options->port, 0, 65535));
  TLM_RETURN_IF_ERROR(CheckHost("host", options->host, options->tls));
  TLM_RETURN_IF_ERROR(CheckHost("admin_host", options->admin_host, options->tls));
  TLM_RETURN_IF_ERROR(
      ReadOptionalPort("admin_port", absl::GetFlag(FLAGS_admin_port), &options->admin_port));
  TLM_RETURN_IF_ERROR(CheckAdministrators(*options));
  TLM_RETURN_IF_ERROR(
      ReadOptionalPort("metrics_port", absl::GetFlag(FLAGS_metrics_port), &options->metrics_port));
  if (!options->port_file.empty()) {
    if (options->admin_port.has_value()) options->admin_port_file = options->port_file + ".admin";
    if (options->metrics_port.has_value()) {
      options->metrics_port_file = options->port_file + ".metrics";
    }
  }
  if (!IsLoopback(options->metrics_host) && !absl::GetFlag(FLAGS_metrics_insecure)) {
    return InvalidArgument(
        "--metrics_host is {}, not a loopback address: add --metrics_insecure to serve it without "
        "encryption and credentials",
        options->metrics_host);
  }
  return absl::OkStatus();
}

// Returns the host of tcp://HOST:PORT, without brackets; nullopt if the text has another form.
std::optional<std::string> HostOfTcp(const std::string& endpoint) {
  constexpr std::string_view kTcp = "tcp://";
  const size_t colon = endpoint.rfind(':');
  if (!endpoint.starts_with(kTcp) || colon <= kTcp.size()) return std::nullopt;
  std::string host = endpoint.substr(kTcp.size(), colon - kTcp.size());
  const std::string port = endpoint.substr(colon + 1);
  int number = 0;
  const bool numeric = absl::SimpleAtoi(port, &number) && number > 0 && number <= 65535;
  if (!numeric && port != "*") return std::nullopt;
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return host;
}

absl::Status CheckZmqEndpoint(std::string_view flag, const std::string& endpoint) {
  constexpr std::string_view kIpc = "ipc://";
  constexpr size_t kMaxIpc = kIpc.size() + 107;  // the path of a socket's address
  if (endpoint.empty()) return absl::OkStatus();
  if (endpoint.starts_with(kIpc) && endpoint.size() > kIpc.size() && endpoint.size() <= kMaxIpc) {
    return absl::OkStatus();
  }
  const std::optional<std::string> host = HostOfTcp(endpoint);
  if (!host.has_value()) {
    return InvalidArgument(
        "--{} is {}, it must be tcp://HOST:PORT or ipc://PATH, the latter of at most {} bytes",
        flag, Quoted(endpoint), kMaxIpc);
  }
  if (IsLoopback(*host) || absl::GetFlag(FLAGS_insecure)) return absl::OkStatus();
  return InvalidArgument(
      "--{} is {}, not a loopback address: add --insecure to tell every client the tokens of "
      "prompts, unencrypted",
      flag, endpoint);
}

absl::Status ReadKvEvents(bool credentials_required, ZmqOptions* options) {
  constexpr size_t kMaxTopic = 255;
  options->endpoint = absl::GetFlag(FLAGS_kv_events_endpoint);
  options->replay_endpoint = absl::GetFlag(FLAGS_kv_events_replay_endpoint);
  options->topic = absl::GetFlag(FLAGS_kv_events_topic);
  TLM_RETURN_IF_ERROR(CheckZmqEndpoint("kv_events_endpoint", options->endpoint));
  TLM_RETURN_IF_ERROR(CheckZmqEndpoint("kv_events_replay_endpoint", options->replay_endpoint));
  if (options->topic.size() > kMaxTopic) {
    return InvalidArgument("--kv_events_topic has {} bytes, the limit is {}", options->topic.size(),
                           kMaxTopic);
  }
  if (options->endpoint.empty()) {
    if (options->replay_endpoint.empty() && options->topic.empty()) return absl::OkStatus();
    return InvalidArgument("--kv_events_{} needs --kv_events_endpoint",
                           options->topic.empty() ? "replay_endpoint" : "topic");
  }
  if (!credentials_required) return absl::OkStatus();
  return InvalidArgument(
      "--kv_events_endpoint asks for no credentials, so it tells nothing of calls with any: it "
      "excludes --api_keys and --tls_client_ca");
}

// Splits HOST:PORT, with brackets around an IPv6 address. Returns the host, or INVALID_ARGUMENT.
absl::StatusOr<std::string> HostOf(std::string_view flag, const std::string& endpoint) {
  const size_t colon = endpoint.rfind(':');
  std::string host = endpoint.substr(0, colon);
  int port = 0;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find_first_of(":/[]") != host.npos) {
    host.clear();
  }
  if (host.empty() || colon == endpoint.npos ||
      !absl::SimpleAtoi(endpoint.substr(colon + 1), &port) || port < 1 || port > 65535) {
    return InvalidArgument("--{} is \"{}\", it must be HOST:PORT, such as localhost:4317", flag,
                           endpoint);
  }
  return host;
}

absl::Status ReadOtlp(OtlpOptions* otlp) {
  otlp->endpoint = absl::GetFlag(FLAGS_otlp_endpoint);
  otlp->ca_file = absl::GetFlag(FLAGS_otlp_ca).path;
  otlp->service_name = absl::GetFlag(FLAGS_otlp_service_name);
  otlp->sample_ratio = absl::GetFlag(FLAGS_otlp_sample_ratio);
  const bool insecure = absl::GetFlag(FLAGS_otlp_insecure);
  if (!(otlp->sample_ratio >= 0 && otlp->sample_ratio <= 1)) {
    return InvalidArgument("--otlp_sample_ratio is {}, the range is [0, 1]", otlp->sample_ratio);
  }
  if (otlp->service_name.empty()) return InvalidArgument("--otlp_service_name is empty");
  if (!otlp->ca_file.empty() && insecure) {
    return InvalidArgument("--otlp_ca and --otlp_insecure exclude each other");
  }
  if (otlp->endpoint.empty()) {
    if (otlp->ca_file.empty() && !insecure) return absl::OkStatus();
    return InvalidArgument("--otlp_{} needs --otlp_endpoint", insecure ? "insecure" : "ca");
  }
  TLM_ASSIGN_OR_RETURN(const std::string host, HostOf("otlp_endpoint", otlp->endpoint));
  otlp->tls = !otlp->ca_file.empty() || !(insecure || IsLoopback(host));
  return absl::OkStatus();
}

absl::Status ReadConnectionLimits(ConnectionLimits* limits) {
  limits->max_connections = absl::GetFlag(FLAGS_max_connections);
  limits->max_concurrent_streams = absl::GetFlag(FLAGS_max_concurrent_streams);
  limits->max_age = absl::GetFlag(FLAGS_max_connection_age);
  TLM_RETURN_IF_ERROR(CheckRange("max_connections", limits->max_connections, 1, 1 << 20));
  TLM_RETURN_IF_ERROR(
      CheckRange("max_concurrent_streams", limits->max_concurrent_streams, 1, 65536));
  if (limits->max_age <= absl::ZeroDuration()) {
    return InvalidArgument("--max_connection_age is {}, it must be positive; inf is no bound",
                           absl::FormatDuration(limits->max_age));
  }
  return absl::OkStatus();
}

}  // namespace

bool IsLoopback(const std::string& host) {
  in_addr v4;
  in6_addr v6;
  if (host == "localhost") return true;
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

absl::StatusOr<ServiceOptions> ReadServiceOptions() {
  ServiceOptions options;
  TLM_RETURN_IF_ERROR(ReadSecurity(&options));
  TLM_RETURN_IF_ERROR(ReadPorts(&options));
  TLM_RETURN_IF_ERROR(ReadConnectionLimits(&options.connections));
  TLM_RETURN_IF_ERROR(ReadKvEvents(options.credentials_required(), &options.kv_events));
  TLM_RETURN_IF_ERROR(ReadOtlp(&options.otlp));
  options.facades = absl::GetFlag(FLAGS_facades);
  options.withdrawal_grace = absl::GetFlag(FLAGS_withdrawal_grace);
  options.drain_timeout = absl::GetFlag(FLAGS_drain_timeout);
  options.stall_timeout = absl::GetFlag(FLAGS_stall_timeout);
  TLM_RETURN_IF_ERROR(CheckNotNegative("withdrawal_grace", options.withdrawal_grace));
  TLM_RETURN_IF_ERROR(CheckNotNegative("drain_timeout", options.drain_timeout));
  TLM_RETURN_IF_ERROR(CheckNotNegative("stall_timeout", options.stall_timeout));
  options.log_level = absl::GetFlag(FLAGS_log_level);
  const absl::StatusOr<LogFormat> format = LogFormatFromName(absl::GetFlag(FLAGS_log_format));
  if (!format.ok()) {
    return InvalidArgument("--log_format {}", std::string(format.status().message()));
  }
  options.log_format = *format;
  options.log_calls = absl::GetFlag(FLAGS_log_calls).on;
  return options;
}

}  // namespace tlm
