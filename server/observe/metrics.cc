#include "server/observe/metrics.h"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/base/mutex.h"
#include "server/observe/engine_metrics.h"
#include "server/observe/metric_families.h"
#include "server/observe/process_figures.h"
#include "server/observe/request_metrics.h"
#include "server/observe/scraped.h"

namespace tlm {
namespace {

std::string_view Result(bool ok) { return ok ? "ok" : "error"; }

}  // namespace

// Families have their own locks. SetModel's objects exist before any call and never change.
class Metrics::Impl {
 public:
  // Reads the engine; without a reader, returns the last snapshot.
  EngineStats ReadEngine() {
    MutexLock lock(&mutex_);
    if (read_engine_) last_stats_ = read_engine_();
    return last_stats_;
  }
  std::vector<prometheus::MetricFamily> Collect() {
    MutexLock lock(&books);
    return families.Collect();
  }
  void SetEngineStats(std::function<EngineStats()> read) {
    MutexLock lock(&mutex_);
    if (!read && read_engine_) last_stats_ = read_engine_();
    read_engine_ = std::move(read);
  }

  std::optional<GpuFigures> ReadGpu() {
    MutexLock lock(&gpu_mutex_);
    return read_gpu_ ? read_gpu_() : std::nullopt;
  }
  void SetGpu(std::function<std::optional<GpuFigures>()> read) {
    MutexLock lock(&gpu_mutex_);
    read_gpu_ = std::move(read);
  }

  // Held while a call is counted and during a scrape, so that a scrape is consistent.
  Mutex books;
  MetricFamilies families;
  TenantLabels tenants;
  // Set before `loaded`, which publishes them to other threads.
  std::string model_name;
  std::optional<RequestMetrics> requests;
  std::optional<EngineMetrics> engine;
  std::atomic<bool> loaded{false};

 private:
  Mutex mutex_;
  std::function<EngineStats()> read_engine_ TLM_GUARDED_BY(mutex_);
  EngineStats last_stats_ TLM_GUARDED_BY(mutex_);
  Mutex gpu_mutex_;
  std::function<std::optional<GpuFigures>()> read_gpu_ TLM_GUARDED_BY(gpu_mutex_);
};

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {}

Metrics::~Metrics() = default;

void Metrics::SetBuild(std::string_view version, std::string_view build_id) {
  impl_->families.Gauge("tlm_build_info", {version, build_id}).Set(1);
}

EngineMetrics* Metrics::SetModel(const ModelFacts& facts) {
  TLM_CHECK(!impl_->loaded.load());
  MetricFamilies& families = impl_->families;
  impl_->model_name = facts.name;
  impl_->requests.emplace(families, facts.name, facts.max_context);
  impl_->engine.emplace(families, facts.name, facts.max_draft_tokens);
  for (const std::string_view finish :
       {"eos", "stop_token", "stop_string", "length", "context_length", "time_limit", "constraint",
        "constraint_complete"}) {
    families.Counter("tlm_outputs_finished_total", {finish});
  }
  for (const std::string_view result :
       {"kept", "joined", "compiled", "invalid", "too_large", "cancelled"}) {
    families.Counter("tlm_constraints_total", {result});
  }
  families.Histogram("tlm_constraint_compile_seconds", {}, LatencyBuckets());
  CountRegions(RegionCounts());
  families.Gauge("tlm_model_info", {facts.name, facts.backend, facts.device, facts.fingerprint})
      .Set(1);
  families
      .Gauge("vllm:cache_config_info",
             {facts.name, kEngineLabel, std::to_string(facts.block_tokens), facts.kv_cache_dtype,
              facts.prefix_cache ? "True" : "False", std::to_string(facts.kv_blocks)})
      .Set(1);
  impl_->loaded.store(true, std::memory_order_release);
  return &*impl_->engine;
}

void Metrics::SetEngineStats(std::function<EngineStats()> read) {
  impl_->SetEngineStats(std::move(read));
}

void Metrics::SetGpu(std::function<std::optional<GpuFigures>()> read) {
  impl_->SetGpu(std::move(read));
}

void Metrics::CountAdmitted(std::string_view rpc, std::string_view tenant) {
  const std::string_view label = impl_->tenants.For(tenant);
  MutexLock lock(&impl_->books);
  impl_->families.Counter("tlm_requests_admitted_total", {rpc, label}).Increment();
  impl_->families.Gauge("tlm_requests_in_flight", {rpc, label}).Increment();
}

void Metrics::CountEnd(const CallSummary& call) {
  MetricFamilies& families = impl_->families;
  const std::string_view tenant = impl_->tenants.For(call.tenant);
  const std::string code = absl::StatusCodeToString(call.code);
  const LabelValues labels = {call.rpc, tenant, code, call.reason};
  MutexLock lock(&impl_->books);
  if (!call.admitted) {
    families.Counter("tlm_requests_refused_total", labels).Increment();
    return;
  }
  families.Counter("tlm_requests_ended_total", labels).Increment();
  families.Gauge("tlm_requests_in_flight", {call.rpc, tenant}).Decrement();
  if (!call.used_engine) return;
  if (call.queue.has_value()) {
    families.Counter("tlm_tenant_prompt_tokens_total", {tenant})
        .Increment(static_cast<double>(call.prompt_tokens));
    families.Counter("tlm_tenant_cached_prompt_tokens_total", {tenant})
        .Increment(static_cast<double>(call.cached_prompt_tokens));
  }
  families.Counter("tlm_tenant_generation_tokens_total", {tenant})
      .Increment(static_cast<double>(call.completion_tokens));
  if (impl_->loaded.load(std::memory_order_acquire)) impl_->requests->RecordEnd(call);
}

void Metrics::RecordFirstToken(absl::Duration since_arrival) {
  if (impl_->loaded.load(std::memory_order_acquire)) {
    impl_->requests->RecordFirstToken(since_arrival);
  }
}

void Metrics::CountOutput(std::string_view finish) {
  impl_->families.Counter("tlm_outputs_finished_total", {finish}).Increment();
}

void Metrics::CountRegions(const RegionCounts& regions) {
  const auto add = [this](std::string_view name, LabelValues labels, int64_t count) {
    impl_->families.Counter(name, labels).Increment(static_cast<double>(count));
  };
  add("tlm_regions_total", {"reasoning"}, regions.reasoning);
  add("tlm_regions_total", {"text"}, regions.text);
  add("tlm_regions_total", {"tool_call"}, regions.complete_calls);
  add("tlm_regions_total", {"cut_tool_call"}, regions.cut_calls);
  add("tlm_reasoning_tokens_total", {}, regions.reasoning_tokens);
}

void Metrics::CountConstraint(std::string_view result) {
  impl_->families.Counter("tlm_constraints_total", {result}).Increment();
}

void Metrics::RecordCompile(absl::Duration time) {
  impl_->families.Histogram("tlm_constraint_compile_seconds", {}, LatencyBuckets())
      .Observe(absl::ToDoubleSeconds(time));
}

// Creates the reload counters at once: Prometheus sees no increase when a counter appears.
void Metrics::SetCertificateExpiry(absl::Time end) {
  for (const bool ok : {true, false}) {
    impl_->families.Counter("tlm_tls_certificate_reloads_total", {Result(ok)});
  }
  impl_->families.Gauge("tlm_tls_certificate_expiry_timestamp_seconds")
      .Set(absl::ToDoubleSeconds(end - absl::UnixEpoch()));
}

void Metrics::CountCertificateReload(bool ok) {
  impl_->families.Counter("tlm_tls_certificate_reloads_total", {Result(ok)}).Increment();
}

void Metrics::SetApiKeys(int64_t accepted) {
  for (const bool ok : {true, false}) {
    impl_->families.Counter("tlm_api_key_reloads_total", {Result(ok)});
  }
  impl_->families.Gauge("tlm_api_keys").Set(static_cast<double>(accepted));
}

void Metrics::CountApiKeyReload(bool ok) {
  impl_->families.Counter("tlm_api_key_reloads_total", {Result(ok)}).Increment();
}

void Metrics::CountSpans(std::string_view result, int64_t count) {
  impl_->families.Counter("tlm_otlp_spans_total", {result}).Increment(static_cast<double>(count));
}

std::string Metrics::Text(LifeState state) const {
  impl_->families.Counter("tlm_metrics_scrapes_total").Increment();
  ScrapedSamples scraped;
  scraped.AddState(state);
  scraped.AddProcess(ReadProcessFigures());
  if (const std::optional<GpuFigures> gpu = impl_->ReadGpu()) scraped.AddGpu(*gpu);
  if (impl_->loaded.load(std::memory_order_acquire)) {
    scraped.AddEngine(impl_->ReadEngine(), impl_->model_name);
  }
  std::vector<prometheus::MetricFamily> families = impl_->Collect();
  families.insert(families.end(), scraped.families().begin(), scraped.families().end());
  std::erase_if(families,
                [](const prometheus::MetricFamily& family) { return family.metric.empty(); });
  std::sort(families.begin(), families.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace tlm
