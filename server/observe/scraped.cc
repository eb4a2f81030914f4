#include "server/observe/scraped.h"

#include <algorithm>
#include <optional>

namespace tlm {

void ScrapedSamples::Add(std::string_view name, double value, LabelValues labels) {
  const MetricSpec& spec = MetricNamed(name);
  if (families_.empty() || families_.back().name != name) {
    const bool counter = spec.kind == MetricKind::kCounter;
    families_.push_back({std::string(name),
                         std::string(spec.help),
                         counter ? prometheus::MetricType::Counter : prometheus::MetricType::Gauge,
                         {}});
  }
  prometheus::ClientMetric sample;
  for (auto& [label, text] : LabelsOf(spec, labels)) sample.label.push_back({label, text});
  sample.counter.value = value;
  sample.gauge.value = value;
  families_.back().metric.push_back(std::move(sample));
}

void ScrapedSamples::AddState(LifeState state) {
  for (const LifeState each : {LifeState::kStarting, LifeState::kServing, LifeState::kNotServing,
                               LifeState::kDraining, LifeState::kStopped}) {
    Add("tlm_state", each == state ? 1 : 0, {LifeStateName(each)});
  }
}

void ScrapedSamples::AddProcess(const ProcessFigures& process) {
  Add("process_cpu_seconds_total", process.cpu_seconds);
  Add("process_resident_memory_bytes", process.resident_bytes);
  Add("process_virtual_memory_bytes", process.virtual_bytes);
  Add("process_open_fds", process.open_fds);
  Add("process_max_fds", process.max_fds);
  Add("process_threads", process.threads);
  Add("process_start_time_seconds", process.start_time);
}

void ScrapedSamples::AddGpu(const GpuFigures& gpu) {
  const auto add = [this](std::string_view name, std::optional<double> value) {
    if (value.has_value()) Add(name, *value);
  };
  Add("tlm_gpu_info", 1, {gpu.uuid, gpu.driver});
  Add("tlm_gpu_up", gpu.answers ? 1 : 0);
  add("tlm_gpu_utilization_ratio", gpu.utilization);
  add("tlm_gpu_memory_utilization_ratio", gpu.memory_utilization);
  add("tlm_gpu_memory_used_bytes", gpu.memory_used_bytes);
  add("tlm_gpu_memory_total_bytes", gpu.memory_total_bytes);
  add("tlm_gpu_power_watts", gpu.power_watts);
  add("tlm_gpu_power_limit_watts", gpu.power_limit_watts);
  add("tlm_gpu_temperature_celsius", gpu.temperature_celsius);
  add("tlm_gpu_sm_clock_hertz", gpu.sm_clock_hertz);
  if (gpu.clock_reasons.has_value()) {
    for (const ClockReason& reason : kClockReasons) {
      Add("tlm_gpu_clock_limited", (*gpu.clock_reasons & reason.bit) != 0 ? 1 : 0, {reason.name});
    }
  }
  add("tlm_gpu_xid_errors_total", gpu.xid_errors);
  add("tlm_gpu_last_xid", gpu.last_xid);
  add("tlm_gpu_ecc_uncorrected_errors_total", gpu.ecc_uncorrected);
  add("tlm_gpu_pcie_replays_total", gpu.pcie_replays);
}

void ScrapedSamples::AddEngine(const EngineStats& engine, std::string_view model_name) {
  const auto count = [](int64_t value) { return static_cast<double>(value); };
  const auto vllm = [&](std::string_view name, double value) {
    Add(name, value, {model_name, kEngineLabel});
  };
  // An idle engine makes no progress and needs none.
  const absl::Duration age =
      engine.busy ? engine.taken - engine.last_progress : absl::ZeroDuration();
  const double usage =
      count(engine.kv_blocks_used) / count(std::max<int64_t>(engine.kv_blocks_total, 1));
  vllm("vllm:num_requests_running", count(engine.running_requests));
  vllm("vllm:num_requests_waiting", count(engine.waiting_requests));
  vllm("vllm:kv_cache_usage_perc", usage);
  vllm("vllm:gpu_cache_usage_perc", usage);
  vllm("vllm:prefix_cache_queries_total", count(engine.prefix_cache.queried_tokens));
  vllm("vllm:prefix_cache_hits_total", count(engine.prefix_cache.hit_tokens));
  vllm("vllm:gpu_prefix_cache_queries_total", count(engine.prefix_cache.queried_tokens));
  vllm("vllm:gpu_prefix_cache_hits_total", count(engine.prefix_cache.hit_tokens));
  vllm("vllm:num_preemptions_total", count(engine.preemptions));
  Add("tlm_engine_steps_total", count(engine.steps));
  Add("tlm_engine_prefill_tokens_total", count(engine.prefill_tokens));
  Add("tlm_engine_decode_tokens_total", count(engine.decode_tokens));
  const RunCounts& runs = engine.model_runs;
  Add("tlm_model_steps_total", count(runs.replayed), {"replayed"});
  Add("tlm_model_steps_total", count(runs.recorded), {"recorded"});
  Add("tlm_model_steps_total", count(runs.direct), {"direct"});
  Add("tlm_model_graphs_total", count(runs.ahead), {"ahead"});
  Add("tlm_model_graphs_total", count(runs.dropped), {"dropped"});
  Add("tlm_model_library_failures_total", count(runs.library_failures));
  Add("tlm_engine_failed_steps", count(engine.consecutive_faults));
  Add("tlm_engine_last_progress_age_seconds", absl::ToDoubleSeconds(age));
  Add("tlm_sequences_parked", count(engine.parked_requests));
  Add("tlm_queued_tokens", count(engine.waiting_tokens));
  Add("tlm_queued_text_bytes", count(engine.waiting_text_bytes));
  Add("tlm_estimated_queue_seconds", absl::ToDoubleSeconds(engine.estimated_queue_time));
  Add("tlm_kv_blocks", count(engine.kv_blocks_used), {"used"});
  Add("tlm_kv_blocks", count(engine.kv_blocks_cached), {"cached"});
  Add("tlm_kv_blocks",
      count(engine.kv_blocks_total - engine.kv_blocks_used - engine.kv_blocks_cached), {"free"});
  Add("tlm_prefix_cache_evicted_blocks_total", count(engine.prefix_cache.evicted_blocks));
  Add("tlm_prefix_cache_published_blocks_total", count(engine.prefix_cache.published_blocks));
  if (!engine.kv_events.has_value()) return;
  const KvEventStats& events = *engine.kv_events;
  Add("tlm_kv_event_blocks_total", count(events.stored_blocks), {"stored"});
  Add("tlm_kv_event_blocks_total", count(events.removed_blocks), {"removed"});
  Add("tlm_kv_event_subscriptions", count(events.subscriptions));
  Add("tlm_kv_event_lost_readers_total", count(events.lost_readers));
  Add("tlm_kv_event_zmq_dropped_total", count(events.zmq_dropped));
  Add("tlm_kv_event_history_bytes", count(events.history_bytes));
}

}  // namespace tlm
