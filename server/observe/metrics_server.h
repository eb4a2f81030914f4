// Serves the metrics port: /metrics for Prometheus, /healthz and /readyz for process managers.
#ifndef TLM_SERVER_OBSERVE_METRICS_SERVER_H_
#define TLM_SERVER_OBSERVE_METRICS_SERVER_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "server/observe/metrics.h"
#include "server/observe/server_state.h"

struct mg_context;
struct mg_connection;

namespace tlm {

struct MetricsServerOptions {
  std::string host;
  int port = 0;  // 0: any free one
};

// Plain HTTP/1.1, GET and HEAD, one request per connection:
//
//   /          200, one line that names the paths below
//   /metrics   200, all metrics
//   /healthz   200 while the process should be kept running: loading, serving or draining; 503
//              while the engine fails or is stuck
//   /readyz    200 while it serves, 503 and the state's name otherwise
//
// Another path gets 404, another method 405. The port answers from before the model is loaded until
// the process ends, in 200 threads of its own. A request that is not complete within half a second
// is cut off; at most 200 connections are served and 20 queued at once. Thread-safe after Start.
class MetricsServer {
 public:
  // Usually one scrape and two probes are in progress. The other threads absorb clients that hang:
  // each occupies a worker for as long as a request may take to arrive.
  static constexpr int kWorkers = 200;
  static constexpr int kAllThreads = kWorkers + 2;

  // Listens. `metrics` and `state` must outlive the server. FAILED_PRECONDITION if the port is in
  // use or not permitted.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const MetricsServerOptions& options,
                                                              const Metrics& metrics,
                                                              const ServerState& state);
  // Ends the requests in progress.
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  int port() const { return port_; }

 private:
  MetricsServer(std::string host, const Metrics& metrics, const ServerState& state)
      : host_(std::move(host)), metrics_(metrics), state_(state) {}
  static int Answer(mg_connection* connection);

  const std::string host_;
  const Metrics& metrics_;
  const ServerState& state_;
  mg_context* context_ = nullptr;
  int port_ = 0;
};

}  // namespace tlm

#endif  // TLM_SERVER_OBSERVE_METRICS_SERVER_H_
