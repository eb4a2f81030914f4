#include "server/observe/metrics_server.h"

#include <civetweb.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <string_view>
#include <thread>

#include "model/base/errors.h"
#include "model/base/mutex.h"

namespace tlm {
namespace {

constexpr char kMetricsType[] = "text/plain; version=0.0.4; charset=utf-8";
constexpr char kPlainType[] = "text/plain; charset=utf-8";
constexpr std::string_view kIndex =
    "tlm-server: /metrics (Prometheus), /healthz (liveness), /readyz (readiness)\n";

// civetweb queues this many connections in addition to those of its workers, for up to
// kRequestTimeoutMs each, and accepts none while that queue is full. Both numbers limit the
// descriptors.
constexpr char kLine[] = "20";
constexpr char kRequestTimeoutMs[] = "500";
constexpr char kMaxRequestBytes[] = "4096";

struct Reply {
  int status = 200;
  std::string_view type = kPlainType;
  std::string body;
};

std::string_view StatusText(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    default:
      return "Service Unavailable";
  }
}

Reply ReplyTo(std::string_view method, std::string_view path, const Metrics& metrics,
              LifeState state) {
  const bool metrics_page = path == "/metrics";
  const bool index = path == "/";
  if (!metrics_page && !index && path != "/healthz" && path != "/readyz") {
    return {404, kPlainType, fmt::format("not found; {}", kIndex)};
  }
  if (method != "GET" && method != "HEAD") return {405, kPlainType, "GET and HEAD only\n"};
  if (metrics_page) return {200, kMetricsType, metrics.Text(state)};
  if (index) return {200, kPlainType, std::string(kIndex)};
  const bool ok =
      path == "/readyz" ? state == LifeState::kServing : state != LifeState::kNotServing;
  return {ok ? 200 : 503, kPlainType, fmt::format("{}\n", LifeStateName(state))};
}

void Send(const Reply& reply, bool with_body, mg_connection* connection) {
  std::string message = fmt::format(
      "HTTP/1.1 {} {}\r\n"
      "Content-Type: {}\r\n"
      "Content-Length: {}\r\n"
      "Cache-Control: no-store\r\n"
      "X-Content-Type-Options: nosniff\r\n"
      "{}"
      "Connection: close\r\n\r\n",
      reply.status, StatusText(reply.status), reply.type, reply.body.size(),
      reply.status == 405 ? "Allow: GET, HEAD\r\n" : "");
  if (with_body) message += reply.body;
  mg_write(connection, message.data(), message.size());
}

// Client errors are logged at debug level only: they contain client data.
int LogMessage(const mg_connection*, const char* message) {
  spdlog::debug("metrics port: {}", std::string_view(message));
  return 1;
}

// Connects to the port repeatedly until destroyed. civetweb checks only every two seconds, or on a
// new connection, whether it should stop; the shutdown must not wait for that.
class Waker {
 public:
  Waker(const std::string& host, int port) : thread_([this, host, port] { Run(host, port); }) {}
  ~Waker() {
    {
      MutexLock lock(&mutex_);
      done_ = true;
      changed_.NotifyAll();
    }
    thread_.join();
  }

 private:
  void Run(const std::string& host, int port) {
    MutexLock lock(&mutex_);
    while (!done_) {
      char error[100];
      mg_connection* const connection =
          mg_connect_client(host.c_str(), port, /*use_ssl=*/0, error, sizeof(error));
      if (connection != nullptr) mg_close_connection(connection);
      changed_.WaitFor(&mutex_, std::chrono::milliseconds(10));
    }
  }

  Mutex mutex_;
  CondVar changed_;
  bool done_ TLM_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the other members
};

std::string Address(const std::string& host, int port) {
  const bool ipv6 = host.find(':') != std::string::npos;
  return ipv6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    const MetricsServerOptions& options, const Metrics& metrics, const ServerState& state) {
  std::unique_ptr<MetricsServer> server(new MetricsServer(options.host, metrics, state));
  const std::string address = Address(options.host, options.port);
  const std::string workers = std::to_string(kWorkers);
  // No document root: no files are served. The cross-origin settings are empty because civetweb
  // would otherwise answer OPTIONS itself.
  const char* settings[] = {"listening_ports",
                            address.c_str(),
                            "num_threads",
                            workers.c_str(),
                            "connection_queue",
                            kLine,
                            "request_timeout_ms",
                            kRequestTimeoutMs,
                            "max_request_size",
                            kMaxRequestBytes,
                            "enable_keep_alive",
                            "no",
                            "access_control_allow_origin",
                            "",
                            "access_control_allow_methods",
                            "",
                            nullptr};
  mg_callbacks callbacks{};
  callbacks.begin_request = &MetricsServer::Answer;
  callbacks.log_message = &LogMessage;
  server->context_ = mg_start(&callbacks, server.get(), settings);
  mg_server_port port{};
  if (server->context_ == nullptr || mg_get_server_ports(server->context_, 1, &port) < 1) {
    return FailedPrecondition("cannot listen on {}: the port is in use or not allowed", address);
  }
  server->port_ = port.port;
  return server;
}

MetricsServer::~MetricsServer() {
  if (context_ == nullptr) return;
  Waker waker(host_, port_);
  mg_stop(context_);
}

int MetricsServer::Answer(mg_connection* connection) {
  const mg_request_info& request = *mg_get_request_info(connection);
  const auto& server = *static_cast<const MetricsServer*>(request.user_data);
  const std::string_view method = request.request_method;
  const std::string_view path = request.local_uri == nullptr ? "" : request.local_uri;
  const Reply reply = ReplyTo(method, path, server.metrics_, server.state_.Get());
  Send(reply, method != "HEAD", connection);
  return reply.status;
}

}  // namespace tlm
