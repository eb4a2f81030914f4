#include "server/process/lifecycle.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "model/base/errors.h"
#include "server/admission/shutdown_request.h"
#include "server/loading/memory_plan.h"
#include "server/loading/model_source.h"
#include "server/observe/log.h"
#include "server/process/app.h"
#include "server/process/descriptor_limit.h"
#include "server/process/heartbeat.h"
#include "server/process/port_file.h"
#include "server/process/service_manager.h"
#include "server/process/shutdown_signals.h"
#include "server/process/start_limits.h"

namespace tlm {
namespace {

// Between news for the service manager while the server starts or ends, and how long it is to be
// patient after each.
constexpr absl::Duration kNewsInterval = absl::Seconds(5);
constexpr absl::Duration kPatience = absl::Seconds(30);
// At the end of the grace: for connections that are being made, and then for the first call of a
// connection that has just been made, which a balancer would not make again elsewhere.
constexpr absl::Duration kConnectTime = absl::Milliseconds(20);
constexpr absl::Duration kSettleTime = absl::Milliseconds(500);

// Everything that can be found out at once, so that no fault hides behind a busy port or a long
// load.
absl::Status CheckStart(const ServerOptions& options) {
  const ServiceOptions& service = options.service;
  TLM_RETURN_IF_ERROR(PortFile::Check("port_file", service.port_file));
  TLM_RETURN_IF_ERROR(PortFile::Check("port_file", service.admin_port_file));
  TLM_RETURN_IF_ERROR(PortFile::Check("port_file", service.metrics_port_file));
  TLM_ASSIGN_OR_RETURN(const ModelConfig config, ReadConfiguration(options));
  TLM_RETURN_IF_ERROR(CheckContext(options, config));
  return CheckThreads(ThreadsNeeded(options));
}

absl::Status Load(App& app) {
  const Heartbeat news(kNewsInterval, [] { NotifyProgress("loading the model", kPatience); });
  return app.Load();
}

// A watchdog wants to hear of the server at least twice as often as it bites.
absl::Duration HealthInterval() {
  return std::min(HealthMonitor::kInterval,
                  WatchdogTimeout().value_or(absl::InfiniteDuration()) / 2);
}

// Says that calls are answered now, and where.
void Announce(const App& app, const ServiceOptions& service) {
  if (service.admin_port.has_value()) {
    spdlog::info("admin on {}:{}", service.admin_host, app.admin_port());
  }
  spdlog::info("{}", app.backend_reason());
  const std::string serving = fmt::format("serving {} on {}:{}", LogQuoted(app.served().model_id),
                                          service.host, app.port());
  spdlog::info("{} ({}, context {} tokens, {} KV blocks)", serving, app.served().device_name,
               app.served().limits.max_context_tokens, app.served().memory.kv_blocks);
  NotifyReady(serving);
}

void End(App& app, const ServiceOptions& service, const ShutdownTerms& terms,
         ShutdownRequest& shutdown) {
  NotifyStopping("draining");
  app.Withdraw();
  const Heartbeat news(kNewsInterval, [&app] {
    NotifyProgress(fmt::format("draining: {} calls", app.active_calls()), kPatience);
  });
  if (terms.withdrawal_grace && service.withdrawal_grace > absl::ZeroDuration()) {
    spdlog::info("withdrawn: NOT_SERVING, accepting calls for {} more",
                 absl::FormatDuration(service.withdrawal_grace));
    shutdown.WaitForHurry(service.withdrawal_grace);
    app.StopBeginnings();
    shutdown.WaitForHurry(kConnectTime);
    app.StopListening();
    shutdown.WaitForHurry(kSettleTime);
  }
  app.Drain(terms.drain_limit.value_or(service.drain_timeout));
}

}  // namespace

absl::Status RunServer(const ServerOptions& options) {
  const ServiceOptions& service = options.service;
  std::optional<StartLimits> start_limits(std::in_place);
  ShutdownRequest shutdown;
  ShutdownSignals signals(shutdown);
  for (const std::string& warning : options.warnings) spdlog::warn("{}", warning);
  spdlog::debug("starting: tlm-server {} model={} preset={}", TLM_VERSION,
                LogQuoted(options.model_dir), LogQuoted(options.preset));
  TLM_RETURN_IF_ERROR(CheckStart(options));
  RaiseDescriptorLimit(service.connections.max_connections);
  TLM_ASSIGN_OR_RETURN(std::unique_ptr<App> app, App::Open(options, shutdown));
  TLM_ASSIGN_OR_RETURN(PortFile early, PortFile::Create("port_file", service.metrics_port_file,
                                                        app->metrics_port()));
  const auto metrics_port_file = std::make_shared<PortFile>(std::move(early));
  signals.BeforeEarlyEnd([metrics_port_file] {
    NotifyStopping("ended while loading the model");
    metrics_port_file->Remove();
  });
  if (const absl::Status loaded = Load(*app); !loaded.ok()) {
    // gRPC 1.51 waits for ever for a thread that it was refused: the process ends without it.
    [[maybe_unused]] static App* const abandoned = app.release();
    return loaded;
  }
  signals.ExpectShutdown();
  TLM_ASSIGN_OR_RETURN(const PortFile admin_port_file,
                       PortFile::Create("port_file", service.admin_port_file, app->admin_port()));
  TLM_RETURN_IF_ERROR(app->Serve(HealthInterval(), NotifyAlive));
  TLM_ASSIGN_OR_RETURN(const PortFile port_file,
                       PortFile::Create("port_file", service.port_file, app->port()));
  start_limits.reset();
  Announce(*app, service);
  const ShutdownTerms terms = shutdown.Wait();
  signals.OnSecond([&] {
    shutdown.Hurry();
    app->Hurry();
  });
  End(*app, service, terms, shutdown);
  signals.OnSecond([] {});
  return absl::OkStatus();
}

}  // namespace tlm
