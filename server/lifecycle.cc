#include "server/lifecycle.h"

#include <spdlog/spdlog.h>

#include <memory>
#include <optional>

#include "model/base/errors.h"
#include "server/admission/shutdown_request.h"
#include "server/app.h"
#include "server/observe/log.h"
#include "server/port_file.h"
#include "server/shutdown_signals.h"

namespace tlm {

absl::Status RunServer(const ServerOptions& options) {
  ShutdownRequest shutdown;
  ShutdownSignals signals(shutdown);
  spdlog::debug("starting: tlm-server {} model={} preset={}", TLM_VERSION,
                LogQuoted(options.model_dir), LogQuoted(options.preset));
  TLM_ASSIGN_OR_RETURN(const std::unique_ptr<App> app, App::Start(options, shutdown));
  signals.ExpectShutdown();
  TLM_ASSIGN_OR_RETURN(const PortFile admin_port_file,
                       PortFile::Create(options.admin_port_file, app->admin_port()));
  TLM_ASSIGN_OR_RETURN(const PortFile port_file, PortFile::Create(options.port_file, app->port()));
  if (options.admin_port.has_value()) {
    spdlog::info("admin on {}:{}", options.admin_host, app->admin_port());
  }
  spdlog::info("{}", app->backend_reason());
  spdlog::info("serving {} on {}:{} ({}, context {} tokens, {} KV blocks)",
               LogQuoted(app->served().model_id), options.host, app->port(),
               app->served().device_name, app->served().limits.max_context_tokens,
               app->served().memory.kv_blocks);
  const std::optional<absl::Duration> limit = shutdown.Wait();
  signals.OnSecond([&app] { app->Hurry(); });
  app->Drain(limit.value_or(options.drain_timeout));
  signals.OnSecond([] {});
  return absl::OkStatus();
}

}  // namespace tlm
