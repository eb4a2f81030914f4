#include "server/process/app.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "absl/random/random.h"
#include "absl/synchronization/mutex.h"
#include "model/base/clock.h"
#include "model/base/errors.h"
#include "server/net/heap.h"
#include "server/process/model_facts.h"
#include "server/process/shutdown_signals.h"
#include "server/rpc/facades.h"

namespace tlm {
namespace {

// Time for the last statuses to reach clients after the calls have ended, and for requests that are
// not calls, such as health watches.
constexpr absl::Duration kShutdownGrace = absl::Seconds(1);
// Waiters for the running step have received their end by then. A step that takes longer than this
// may never end, and the process need not wait for it.
constexpr absl::Duration kEngineStopLimit = absl::Seconds(10);
// gRPC closes connections only between two reads of them, however long it is busy with one.
constexpr absl::Duration kCloseLimit = absl::Seconds(10);
// Time for the spans of the last calls to reach the collector.
constexpr absl::Duration kTracesLimit = absl::Seconds(3);
// Calls whose results are read slowly occupy no engine slot, so some more calls are admitted.
constexpr int64_t kExtraCalls = 1024;

AdmissionLimits AdmissionLimitsFor(const RequestLimits& served) {
  AdmissionLimits limits;
  limits.max_calls =
      served.engine.max_running_requests + served.engine.max_queued_requests + kExtraCalls;
  return limits;
}

// The returned function trims the heap when it has grown since this call.
std::function<void()> TrimHeapAfterStorms() {
  HeapTrimmer trimmer;
  trimmer.ShouldTrim(FreeHeapBytes());
  return [trimmer]() mutable {
    if (trimmer.ShouldTrim(FreeHeapBytes())) TrimHeap();
  };
}

// Seeded by the operating system, so that seeds and ids of replicas never coincide. Each thread has
// a generator, because asking the system each time costs more than all the rest of a refused call.
uint64_t RandomBits() {
  thread_local absl::BitGen generator;
  return generator();
}

}  // namespace

App::App(const ServerOptions& options, ShutdownRequest& shutdown)
    : options_(options), shutdown_(shutdown) {}

App::~App() {
  monitor_.reset();
  if (engine_ != nullptr) engine_->Stop();
  metrics_.SetEngineStats(nullptr);
  metrics_.SetGpu(nullptr);
}

absl::StatusOr<std::unique_ptr<App>> App::Open(const ServerOptions& options,
                                               ShutdownRequest& shutdown) {
  RouteGrpcLog();
  // The distribution's library would look for deadlocks at every lock that gRPC takes.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  std::unique_ptr<App> app(new App(options, shutdown));
  TLM_RETURN_IF_ERROR(app->OpenPorts());
  return app;
}

CallServices App::CallServicesOf() {
  return {credentials_->authenticator(), metrics_, *Clock::Monotonic(), RandomBits, traces_.get()};
}

absl::Status App::OpenPorts() {
  const ServiceOptions& service = options_.service;
  TLM_ASSIGN_OR_RETURN(credentials_, Credentials::Load(service, metrics_, *Clock::Wall()));
  const TlsCertificates* const certificates = credentials_->tls();
  if (service.metrics_port.has_value()) {
    TLM_ASSIGN_OR_RETURN(
        metrics_server_,
        MetricsServer::Start({service.metrics_host, *service.metrics_port}, metrics_, state_));
  }
  if (!service.kv_events.endpoint.empty()) {
    TLM_ASSIGN_OR_RETURN(kv_events_, ZmqPublisher::Open(service.kv_events));
  }
  if (!service.otlp.endpoint.empty()) {
    TLM_ASSIGN_OR_RETURN(traces_,
                         OtlpExporter::Start(service.otlp, TLM_VERSION, MethodNamed, metrics_));
  }
  TLM_ASSIGN_OR_RETURN(server_, RpcServer::Open(service.data_listener(certificates),
                                                CallServicesOf(), service.facades));
  if (service.listen_while_loading) TLM_RETURN_IF_ERROR(server_->listener().Listen());
  if (service.admin_port.has_value()) {
    TLM_ASSIGN_OR_RETURN(admin_, AdminServer::Open(service.admin_listener(certificates),
                                                   {CallServicesOf(), shutdown_, options_.flags}));
  }
  return absl::OkStatus();
}

absl::Status App::Load(OpenedModels opened) {
  Clock& clock = *Clock::Monotonic();
  TLM_ASSIGN_OR_RETURN(LoadedModel loaded, LoadModel(options_, std::move(opened)));
  const ServedModel& served = loaded_.emplace(std::move(loaded)).served;
  admission_.emplace(AdmissionLimitsFor(served.limits), clock,
                     [this] { return engine_->CheckOpen(); });
  metrics_.SetBuild(served.server_version, served.build_id);
  EngineMetrics* const metrics = metrics_.SetModel(FactsOf(served));
  if (metrics_server_ != nullptr && !served.device_uuid.empty()) {
    gpu_ = std::make_unique<GpuMonitor>(served.device_uuid);
    metrics_.SetGpu([this] { return gpu_->Read(); });
  }
  EngineOptions options = served.limits.engine;
  options.kv_events.enabled |= WantKvEvents(options_.service.facades);
  if (loaded_->draft_model != nullptr) draft_.emplace(*loaded_->draft_model);
  TLM_ASSIGN_OR_RETURN(engine_, Engine::Start(*loaded_->model, options, clock, metrics,
                                              draft_.has_value() ? &*draft_ : nullptr));
  constraints_.emplace(
      ConstraintCompilerOptions{.limits = served.limits.constraint}, served.tokenizer,
      std::vector<int32_t>(served.config.eos_token_ids.begin(), served.config.eos_token_ids.end()),
      &metrics_);
  load_.emplace(*engine_, served.limits.engine.max_running_requests, clock);
  if (kv_events_ != nullptr) {
    TLM_RETURN_IF_ERROR(kv_events_->Publish(*engine_->kv_events()));
    loaded_->served.kv_events = {.endpoint = kv_events_->endpoint(),
                                 .replay_endpoint = kv_events_->replay_endpoint(),
                                 .topic = options_.service.kv_events.topic,
                                 .replay_batches = options.kv_events.max_batches,
                                 .high_water_mark = ZmqPublisher::kHighWaterMark};
    spdlog::info("KV events on {}", kv_events_->endpoint());
  }
  metrics_.SetEngineStats([this] {
    EngineStats stats = engine_->Stats();
    stats.waiting_text_bytes = texts_.waiting_bytes();
    if (kv_events_ != nullptr) stats.kv_events->zmq_dropped = kv_events_->dropped();
    return stats;
  });
  return absl::OkStatus();
}

absl::Status App::Serve(absl::Duration health_interval, std::function<void()> healthy) {
  Clock& clock = *Clock::Monotonic();
  admission_->Open();
  server_->Serve({CallServicesOf(), loaded_->served, *engine_, *admission_, calls_, texts_,
                  *constraints_, *load_});
  if (admin_ != nullptr) {
    admin_->Serve({*engine_, *admission_, calls_, loaded_->served.limits, clock.Now()});
  }
  const auto changed = [this](bool serving) {
    state_.Set(serving ? LifeState::kServing : LifeState::kNotServing);
    server_->SetServing(serving);
    if (!serving && gpu_ != nullptr) gpu_->Read();  // logs what the driver reports
  };
  monitor_.emplace(*engine_, clock, options_.service.stall_timeout, health_interval,
                   HealthReports{changed, std::move(healthy), TrimHeapAfterStorms()});
  return options_.service.listen_while_loading ? absl::OkStatus() : server_->listener().Listen();
}

void App::Withdraw() {
  state_.Set(LifeState::kDraining);
  monitor_->Stop();
}

void App::Drain(absl::Duration timeout) {
  // Drains before the clients are told to leave, so that calls in between are refused with a
  // reason.
  admission_->Drain();
  server_->Withdraw();
  spdlog::info("draining: {} calls active, at most {}", admission_->active_calls(),
               absl::FormatDuration(timeout));
  // Waits for calls and not for the engine, because a Forward call queues its sequences one after
  // the other.
  if (!admission_->WaitUntilEmpty(timeout)) {
    spdlog::warn("drain cut short: {} calls end with UNAVAILABLE", admission_->active_calls());
  }
  {
    const ShutdownWatchdog watchdog("the engine has not stopped", kEngineStopLimit);
    engine_->Stop();
  }
  texts_.Stop();
  constraints_->Stop();
  const ShutdownWatchdog watchdog("connections have not closed", kCloseLimit);
  server_->listener().Shutdown(kShutdownGrace);
  if (traces_ != nullptr) traces_->Stop(kTracesLimit);
  state_.Set(LifeState::kStopped);
  if (admin_ != nullptr) admin_->listener().Shutdown(kShutdownGrace);
  const EngineStats stats = engine_->Stats();
  spdlog::info("stopped: finished_requests={} kv_blocks_used={} prefill_tokens={} decode_tokens={}",
               stats.finished_requests, stats.kv_blocks_used, stats.prefill_tokens,
               stats.decode_tokens);
}

}  // namespace tlm
