// The whole server, put together: model, engine, admission, gRPC.
#ifndef TLM_SERVER_APP_H_
#define TLM_SERVER_APP_H_

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "server/admission/admission.h"
#include "server/admission/shutdown_request.h"
#include "server/batching/engine.h"
#include "server/health_monitor.h"
#include "server/model_loader.h"
#include "server/options.h"
#include "server/rpc/admin_server.h"
#include "server/rpc/call_registry.h"
#include "server/rpc/rpc_server.h"

namespace tlm {

// Serves from Start to Drain. Not thread-safe but for Hurry().
class App {
 public:
  // Loads the model and starts everything, in the order of the members. When it returns the server
  // accepts calls and its health is SERVING. The Admin service asks `shutdown`, which outlives the
  // app. Every error is one line that says what to change.
  static absl::StatusOr<std::unique_ptr<App>> Start(const ServerOptions& options,
                                                    ShutdownRequest& shutdown);
  // Ends what is left, at once.
  ~App();

  int port() const { return server_->port(); }
  // 0 without an admin port.
  int admin_port() const { return admin_ == nullptr ? 0 : admin_->port(); }
  const ServedModel& served() const { return loaded_.served; }
  // Which backend it runs on and why, in one line for people.
  const std::string& backend_reason() const { return loaded_.backend_reason; }

  // NOT_SERVING, new calls are refused with UNAVAILABLE (reason DRAINING), calls that run may go on
  // for `timeout`; then the rest ends with UNAVAILABLE. Returns when no call is left; the admin
  // port answers until then.
  void Drain(absl::Duration timeout);
  // Cuts a Drain short, present or future. From any thread; does not block.
  void Hurry() { admission_.Interrupt(); }

 private:
  explicit App(LoadedModel loaded);
  absl::Status StartAdmin(const ServerOptions& options, ShutdownRequest& shutdown);

  LoadedModel loaded_;
  Admission admission_;
  CallRegistry calls_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<AdminServer> admin_;  // null: there is no admin port
  std::optional<HealthMonitor> monitor_;
};

}  // namespace tlm

#endif  // TLM_SERVER_APP_H_
