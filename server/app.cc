#include "server/app.h"

#include <spdlog/spdlog.h>

#include <random>
#include <utility>

#include "model/base/clock.h"
#include "model/base/errors.h"

namespace tlm {
namespace {

// For the last statuses to reach clients once the calls have ended, and for what counts as no call:
// health watches and the like.
constexpr absl::Duration kShutdownGrace = absl::Seconds(1);
// Calls that are being read out slowly hold no engine slot: let some of them come on top.
constexpr int64_t kExtraCalls = 1024;

AdmissionLimits AdmissionLimitsFor(const RequestLimits& served) {
  AdmissionLimits limits;
  limits.max_calls = served.max_running_requests + served.max_queued_requests + kExtraCalls;
  return limits;
}

EngineOptions EngineOptionsFor(const ServerOptions& options, const RequestLimits& served) {
  EngineOptions engine;
  engine.max_batch_tokens = served.max_batch_tokens;
  engine.max_prefill_tokens = served.max_prefill_tokens;
  engine.max_decode_stretch = options.max_decode_stretch;
  engine.short_prompt_tokens = options.short_prompt_tokens;
  engine.prefix_cache = options.prefix_cache;
  engine.max_running_requests = served.max_running_requests;
  engine.max_queued_requests = options.max_queued_requests;
  engine.max_queued_tokens = options.max_queued_tokens;
  engine.max_queue_time = options.max_queue_time;
  return engine;
}

// From the operating system, so that seeds and ids of replicas never coincide.
uint64_t RandomBits() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

}  // namespace

App::App(LoadedModel loaded)
    : loaded_(std::move(loaded)),
      admission_(AdmissionLimitsFor(loaded_.served.limits), *Clock::Real()) {}

App::~App() {
  monitor_.reset();
  if (engine_ != nullptr) engine_->Stop();
}

absl::StatusOr<std::unique_ptr<App>> App::Start(const ServerOptions& options,
                                                ShutdownRequest& shutdown) {
  RouteGrpcLog();
  TLM_ASSIGN_OR_RETURN(LoadedModel loaded, LoadModel(options));
  Clock& clock = *Clock::Real();
  std::unique_ptr<App> app(new App(std::move(loaded)));
  TLM_ASSIGN_OR_RETURN(app->engine_,
                       Engine::Start(*app->loaded_.model,
                                     EngineOptionsFor(options, app->loaded_.served.limits), clock));
  const RpcContext rpc{app->loaded_.served, *app->engine_, app->admission_,
                       app->calls_,         clock,         RandomBits};
  TLM_ASSIGN_OR_RETURN(app->server_, RpcServer::Start(options.host, options.port, rpc));
  TLM_RETURN_IF_ERROR(app->StartAdmin(options, shutdown));
  app->admission_.Open();
  app->monitor_.emplace(*app->engine_, *app->server_, clock, options.stall_timeout);
  return app;
}

absl::Status App::StartAdmin(const ServerOptions& options, ShutdownRequest& shutdown) {
  if (!options.admin_port.has_value()) return absl::OkStatus();
  Clock& clock = *Clock::Real();
  AdminContext context{*engine_,    admission_,   calls_, shutdown, clock, loaded_.served.limits,
                       clock.Now(), options.flags};
  TLM_ASSIGN_OR_RETURN(
      admin_, AdminServer::Start(options.admin_host, *options.admin_port, std::move(context)));
  return absl::OkStatus();
}

void App::Drain(absl::Duration timeout) {
  monitor_->Stop();
  admission_.Drain();
  spdlog::info("draining: {} calls active, at most {}", admission_.active_calls(),
               absl::FormatDuration(timeout));
  // Calls rather than the engine: a Forward call queues its sequences one after the other.
  if (!admission_.WaitUntilEmpty(timeout)) {
    spdlog::warn("drain cut short: {} calls end with UNAVAILABLE", admission_.active_calls());
  }
  engine_->Stop();
  server_->Shutdown(kShutdownGrace);
  if (admin_ != nullptr) admin_->Shutdown(kShutdownGrace);
  const EngineStats stats = engine_->Stats();
  spdlog::info("stopped: finished_requests={} kv_blocks_used={} prefill_tokens={} decode_tokens={}",
               stats.finished_requests, stats.kv_blocks_used, stats.prefill_tokens,
               stats.decode_tokens);
}

}  // namespace tlm
