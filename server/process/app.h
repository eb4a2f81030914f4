// Assembles the whole server: model, engine, admission, gRPC.
#ifndef TLM_SERVER_PROCESS_APP_H_
#define TLM_SERVER_PROCESS_APP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/admission/admission.h"
#include "server/admission/shutdown_request.h"
#include "server/batching/engine.h"
#include "server/config/options.h"
#include "server/constraints/constraint_compiler.h"
#include "server/kv_events/zmq_publisher.h"
#include "server/loading/model_loader.h"
#include "server/observe/gpu_monitor.h"
#include "server/observe/metrics.h"
#include "server/observe/metrics_server.h"
#include "server/observe/server_state.h"
#include "server/process/credentials.h"
#include "server/process/health_monitor.h"
#include "server/rpc/admin/admin_service.h"
#include "server/rpc/call/call_registry.h"
#include "server/rpc/call/load_reporter.h"
#include "server/rpc/call/text_pools.h"
#include "server/rpc/otlp/otlp_exporter.h"
#include "server/rpc/rpc_server.h"
#include "server/speculation/draft_model.h"

namespace tlm {

// starting -> Load() -> Serve() -> serving -> Withdraw() -> Drain() -> stopped. Not thread-safe,
// except for SkipDrain() and active_calls().
class App {
 public:
  // Binds all ports. The admin port and the metrics port answer at once. The data port refuses
  // connections until Serve(); with options.service.listen_while_loading it answers NOT_SERVING and
  // ends calls with UNAVAILABLE, reason STARTING. The Admin service requests the shutdown from
  // `shutdown`. `shutdown` and `options` outlive the app. Every error, here and of Load, is one
  // line that says what to change.
  static absl::StatusOr<std::unique_ptr<App>> Open(const ServerOptions& options,
                                                   ShutdownRequest& shutdown);
  // Ends remaining calls at once.
  ~App();

  // The data port.
  GrpcListener& data_port() { return server_->listener(); }
  // Each is 0 without that port.
  int admin_port() const { return admin_ == nullptr ? 0 : admin_->listener().port(); }
  int metrics_port() const { return metrics_server_ == nullptr ? 0 : metrics_server_->port(); }

  // Loads the model and starts the engine.
  absl::Status Load(OpenedModels opened);
  // Call once loaded: accepts calls from now on; health is SERVING while the engine is healthy.
  // FAILED_PRECONDITION when the port cannot be opened. While the engine is healthy, `healthy` is
  // called on another thread at least every `health_interval`.
  absl::Status Serve(absl::Duration health_interval, std::function<void()> healthy);

  // Call once loaded.
  const ServedModel& served() const { return loaded_->served; }
  // Returns the backend and the reason for it, in one line for display.
  const std::string& backend_reason() const { return loaded_->backend_reason; }
  int64_t active_calls() const { return admission_->active_calls(); }

  // Sets health to NOT_SERVING for good; calls are still accepted.
  void Withdraw();
  // Refuses new calls; clients reconnect elsewhere. Running calls get `timeout`; then they end with
  // UNAVAILABLE, reason DRAINING. Returns when no call is left; the admin port and the metrics port
  // answer until then. Call Withdraw() first.
  void Drain(absl::Duration timeout);
  // Ends a Drain at once, present or future. Callable from any thread; does not block.
  void SkipDrain() { admission_->Interrupt(); }

 private:
  App(const ServerOptions& options, ShutdownRequest& shutdown);
  CallServices CallServicesOf();
  absl::Status OpenPorts();

  const ServerOptions& options_;
  ShutdownRequest& shutdown_;
  ServerState state_;
  Metrics metrics_;
  std::unique_ptr<Credentials> credentials_;
  std::unique_ptr<MetricsServer> metrics_server_;  // null without a metrics port
  std::unique_ptr<OtlpExporter> traces_;           // null without a collector
  std::unique_ptr<GpuMonitor> gpu_;                // null without a metrics port, or on a CPU
  CallRegistry calls_;
  TextPools texts_;
  std::optional<LoadedModel> loaded_;
  std::optional<ConstraintCompiler> constraints_;
  std::optional<Admission> admission_;
  std::optional<DraftModel> draft_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<ZmqPublisher> kv_events_;  // null without an endpoint
  std::optional<LoadReporter> load_;
  // The calls of these use all members above.
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<AdminServer> admin_;  // null without an admin port
  std::optional<HealthMonitor> monitor_;
};

}  // namespace tlm

#endif  // TLM_SERVER_PROCESS_APP_H_
