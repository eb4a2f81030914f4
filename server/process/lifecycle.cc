#include "server/process/lifecycle.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "model/base/errors.h"
#include "server/admission/shutdown_request.h"
#include "server/loading/model_loader.h"
#include "server/observe/log.h"
#include "server/process/app.h"
#include "server/process/heartbeat.h"
#include "server/process/port_file.h"
#include "server/process/service_manager.h"
#include "server/process/shutdown_signals.h"
#include "server/process/start_limits.h"

namespace tlm {
namespace {

// The interval at which the service manager is notified of progress while the server starts or
// stops, and the time by which each notification extends its timeout.
constexpr absl::Duration kNotifyInterval = absl::Seconds(5);
constexpr absl::Duration kNotifyTimeout = absl::Seconds(30);
// Pauses at the end of the grace: for handshakes in progress, and then for the first call of a new
// connection, which a balancer would not repeat on another replica.
constexpr absl::Duration kConnectTime = absl::Milliseconds(20);
constexpr absl::Duration kSettleTime = absl::Milliseconds(500);

// Makes every check that needs neither a port nor the weights, so that a busy port or a long load
// does not delay the report of a fault. Returns what the load goes on with.
absl::StatusOr<OpenedModels> CheckStart(const ServerOptions& options) {
  const ServiceOptions& service = options.service;
  TLM_RETURN_IF_ERROR(PortFile::Check("port_file", service.port_file));
  TLM_RETURN_IF_ERROR(PortFile::Check("port_file", service.admin_port_file));
  TLM_RETURN_IF_ERROR(PortFile::Check("port_file", service.metrics_port_file));
  TLM_ASSIGN_OR_RETURN(OpenedModels opened, OpenModels(options));
  TLM_RETURN_IF_ERROR(CheckThreads(ThreadsNeeded(options)));
  return opened;
}

absl::Status Load(App& app, OpenedModels opened) {
  const Heartbeat heartbeat(kNotifyInterval,
                            [] { NotifyProgress("loading the model", kNotifyTimeout); });
  return app.Load(std::move(opened));
}

// At least two polls per interval of the service manager's watchdog.
absl::Duration HealthInterval() {
  return std::min(HealthMonitor::kInterval,
                  WatchdogTimeout().value_or(absl::InfiniteDuration()) / 2);
}

// Logs that calls are answered from now on, and where; notifies the service manager.
void Announce(App& app, const ServerOptions& options) {
  const ServiceOptions& service = options.service;
  if (service.admin_port.has_value()) {
    spdlog::info("admin on {}:{}", service.admin_host, app.admin_port());
  }
  spdlog::info("{}", app.backend_reason());
  const std::string serving = fmt::format("serving {} on {}:{}", LogQuoted(app.served().model_id),
                                          service.host, app.data_port().port());
  const bool hides_calls = !service.log_calls.has_value() && !LogsCalls();
  spdlog::info("{} ({}, context {} tokens, {} KV blocks){}", serving, app.served().device_name,
               app.served().limits.max_context_tokens, app.served().memory.kv_blocks,
               hides_calls ? "; --log_calls logs each call" : "");
  if (!options.bundled_hint.empty()) spdlog::info("{}", options.bundled_hint);
  NotifyReady(serving);
}

void End(App& app, const ServiceOptions& service, const ShutdownTerms& terms,
         ShutdownRequest& shutdown) {
  NotifyStopping("draining");
  app.Withdraw();
  const Heartbeat heartbeat(kNotifyInterval, [&app] {
    NotifyProgress(fmt::format("draining: {} calls", app.active_calls()), kNotifyTimeout);
  });
  if (terms.withdrawal_grace && service.withdrawal_grace > absl::ZeroDuration()) {
    spdlog::info("withdrawn: NOT_SERVING, accepting calls for {} more",
                 absl::FormatDuration(service.withdrawal_grace));
    shutdown.WaitForSkip(service.withdrawal_grace);
    app.data_port().StopAcceptingSyn();
    shutdown.WaitForSkip(kConnectTime);
    app.data_port().StopListening();
    shutdown.WaitForSkip(kSettleTime);
  }
  app.Drain(terms.drain_limit.value_or(service.drain_timeout));
}

}  // namespace

absl::Status RunServer(const ServerOptions& options) {
  const ServiceOptions& service = options.service;
  std::optional<StartLimits> start_limits(std::in_place);
  ShutdownRequest shutdown;
  ShutdownSignals signals(shutdown);
  spdlog::debug("starting: tlm-server {} model={} preset={}", TLM_VERSION,
                LogQuoted(options.model_dir), LogQuoted(options.preset));
  TLM_RETURN_IF_ERROR(RaiseDescriptorLimit(service.connections.max_connections));
  TLM_ASSIGN_OR_RETURN(OpenedModels opened, CheckStart(options));
  TLM_ASSIGN_OR_RETURN(std::unique_ptr<App> app, App::Open(options, shutdown));
  std::shared_ptr<PortFile> metrics_port_file;
  absl::Status written;
  signals.BeforeEarlyEnd([&]() -> std::function<void()> {
    auto file = PortFile::Create("port_file", service.metrics_port_file, app->metrics_port());
    written = file.status();
    if (!file.ok()) return nullptr;
    metrics_port_file = std::make_shared<PortFile>(*std::move(file));
    return [metrics_port_file] {
      NotifyStopping("ended while loading the model");
      metrics_port_file->Remove();
    };
  });
  TLM_RETURN_IF_ERROR(written);
  if (const absl::Status loaded = Load(*app, std::move(opened)); !loaded.ok()) {
    // The process ends without gRPC 1.51, which waits forever for a thread that the system refused.
    [[maybe_unused]] static App* const abandoned = app.release();
    return loaded;
  }
  signals.ExpectShutdown();
  TLM_ASSIGN_OR_RETURN(const PortFile admin_port_file,
                       PortFile::Create("port_file", service.admin_port_file, app->admin_port()));
  TLM_RETURN_IF_ERROR(app->Serve(HealthInterval(), NotifyAlive));
  TLM_ASSIGN_OR_RETURN(const PortFile port_file,
                       PortFile::Create("port_file", service.port_file, app->data_port().port()));
  start_limits.reset();
  Announce(*app, options);
  const ShutdownTerms terms = shutdown.Wait();
  signals.OnSecond([&] {
    shutdown.SkipDrain();
    app->SkipDrain();
  });
  End(*app, service, terms, shutdown);
  signals.OnSecond([] {});
  return absl::OkStatus();
}

}  // namespace tlm
