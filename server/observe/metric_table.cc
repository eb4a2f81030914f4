#include "server/observe/metric_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/base/errors.h"

namespace tlm {
namespace {

constexpr MetricKind kCounter = MetricKind::kCounter;
constexpr MetricKind kGauge = MetricKind::kGauge;
constexpr MetricKind kHistogram = MetricKind::kHistogram;

// Metrics shared with vLLM (0.9 and later) have its names, labels and buckets.
constexpr std::string_view kModel = "model_name engine";

constexpr MetricSpec kMetrics[] = {
    {"vllm:num_requests_running", kGauge, kModel,
     "Sequences that hold KV blocks; a request for several outputs counts once per output."},
    {"vllm:num_requests_waiting", kGauge, kModel,
     "Requests waiting for their first step, and preempted sequences."},
    {"vllm:kv_cache_usage_perc", kGauge, kModel,
     "Fraction of the KV blocks that sequences use, 0 to 1. Blocks held only by the prefix cache "
     "are reclaimed on demand and do not count."},
    {"vllm:gpu_cache_usage_perc", kGauge, kModel,
     "Deprecated alias of vllm:kv_cache_usage_perc, which routers read."},
    {"vllm:prefix_cache_queries_total", kCounter, kModel,
     "Tokens of full KV blocks looked up in the prefix cache."},
    {"vllm:prefix_cache_hits_total", kCounter, kModel, "Tokens found by these lookups."},
    {"vllm:gpu_prefix_cache_queries_total", kCounter, kModel,
     "Deprecated alias of vllm:prefix_cache_queries_total."},
    {"vllm:gpu_prefix_cache_hits_total", kCounter, kModel,
     "Deprecated alias of vllm:prefix_cache_hits_total."},
    {"vllm:num_preemptions_total", kCounter, kModel,
     "Sequences whose KV blocks were given to others; they are recomputed."},
    {"vllm:prompt_tokens_total", kCounter, kModel,
     "Prompt tokens of started requests, including those found in the prefix cache."},
    {"vllm:generation_tokens_total", kCounter, kModel, "Sampled tokens."},
    {"vllm:request_success_total", kCounter, "model_name engine finished_reason",
     "Admitted requests that ended, by outcome: stop (end of sequence, stop token or string, every "
     "Forward, Score and Verify), length (also of the context, and time limits), abort (cancelled, "
     "aborted, deadline exceeded), error."},
    {"vllm:request_prompt_tokens", kHistogram, kModel, "Prompt tokens of a request that ended."},
    {"vllm:request_generation_tokens", kHistogram, kModel,
     "Tokens generated for a Generate request that ended, over all its outputs."},
    {"vllm:iteration_tokens_total", kHistogram, kModel,
     "Tokens computed by an engine step, prefill and decode together."},
    {"vllm:time_to_first_token_seconds", kHistogram, kModel,
     "TTFT: from the arrival of a Generate request to its first token."},
    {"vllm:inter_token_latency_seconds", kHistogram, kModel,
     "From one token of an output to the next, as the engine samples them."},
    {"vllm:time_per_output_token_seconds", kHistogram, kModel,
     "Deprecated alias of vllm:inter_token_latency_seconds."},
    {"vllm:e2e_request_latency_seconds", kHistogram, kModel,
     "From the arrival of an admitted request to its end, including the last write."},
    {"vllm:request_queue_time_seconds", kHistogram, kModel,
     "From entering the queue to the first step, of started requests."},
    {"vllm:request_prefill_time_seconds", kHistogram, kModel,
     "From the first step to the first token, of successful Generate requests."},
    {"vllm:request_decode_time_seconds", kHistogram, kModel,
     "From the first token to the last, of successful Generate requests."},
    {"vllm:request_inference_time_seconds", kHistogram, kModel,
     "From the first step to the last token, of successful Generate requests."},
    {"vllm:spec_decode_num_drafts_total", kCounter, kModel,
     "Drafts (guesses of the next tokens of an output) that were computed."},
    {"vllm:spec_decode_num_draft_tokens_total", kCounter, kModel, "Tokens of these drafts."},
    {"vllm:spec_decode_num_accepted_tokens_total", kCounter, kModel,
     "Tokens of these drafts that were sampled as guessed."},
    {"vllm:spec_decode_num_accepted_tokens_per_pos_total", kCounter, "model_name engine position",
     "The same by their position in the draft, from 0."},
    {"vllm:cache_config_info", kGauge,
     "model_name engine block_size cache_dtype enable_prefix_caching num_gpu_blocks",
     "Always 1; its labels describe the KV cache."},

    {"tlm_time_to_first_token_seconds", kHistogram, "model_name",
     "vllm:time_to_first_token_seconds in finer buckets."},
    {"tlm_inter_token_latency_seconds", kHistogram, "model_name",
     "vllm:inter_token_latency_seconds in finer buckets."},
    {"tlm_e2e_request_latency_seconds", kHistogram, "model_name",
     "vllm:e2e_request_latency_seconds in finer buckets."},
    {"tlm_request_queue_time_seconds", kHistogram, "model_name",
     "vllm:request_queue_time_seconds in finer buckets."},

    {"tlm_requests_admitted_total", kCounter, "rpc tenant",
     "Admitted requests. Each of them is counted in tlm_requests_ended_total exactly once."},
    {"tlm_requests_ended_total", kCounter, "rpc tenant code reason",
     "Admitted requests that ended, by gRPC code and the reason in the status, if any."},
    {"tlm_requests_refused_total", kCounter, "rpc tenant code reason",
     "Requests that were not admitted: invalid credentials or arguments, limits, full queue, "
     "starting, draining."},
    {"tlm_requests_in_flight", kGauge, "rpc tenant",
     "Admitted requests that have not ended: admitted minus ended."},
    {"tlm_outputs_finished_total", kCounter, "reason",
     "Successful outputs of Generate, by finish reason: eos, stop_token, stop_string, length, "
     "context_length, time_limit, constraint (nothing may follow), constraint_complete."},
    {"tlm_regions_total", kCounter, "kind",
     "Regions of successful Generate calls that report regions: reasoning, text, tool_call, "
     "cut_tool_call (the output ended within the call)."},
    {"tlm_reasoning_tokens_total", kCounter, "", "Tokens of their reasoning, without its markup."},
    {"tlm_tenant_prompt_tokens_total", kCounter, "tenant",
     "Prompt tokens of the tenant's requests that started and have ended."},
    {"tlm_tenant_cached_prompt_tokens_total", kCounter, "tenant",
     "The part of these tokens that came from the prefix cache."},
    {"tlm_tenant_generation_tokens_total", kCounter, "tenant",
     "Tokens generated for the tenant's requests that ended."},

    {"tlm_engine_steps_total", kCounter, "", "Engine steps, including failed ones."},
    {"tlm_engine_step_seconds", kHistogram, "",
     "From the end of one engine step to the end of the next, without idle time."},
    {"tlm_engine_prefill_tokens_total", kCounter, "",
     "Prompt tokens computed, including recomputation after preemption, excluding cache hits."},
    {"tlm_engine_decode_tokens_total", kCounter, "", "Generated tokens computed."},
    {"tlm_model_steps_total", kCounter, "run",
     "Steps of shapes that recur, on a GPU: replayed from a CUDA graph, recorded first (stalls the "
     "step for milliseconds), or direct (could not be recorded)."},
    {"tlm_model_graphs_total", kCounter, "event",
     "CUDA graphs: recorded ahead, before the server was ready, or dropped to make room for "
     "others."},
    {"tlm_model_library_failures_total", kCounter, "",
     "Ranges of row counts of a matrix product that cuBLASLt failed to compute: own kernels, with "
     "the same results, compute them since."},
    {"tlm_engine_failed_steps", kGauge, "", "Engine steps that failed since the last success."},
    {"tlm_engine_last_progress_age_seconds", kGauge, "",
     "Time since the end of the last step; 0 while the engine is idle."},
    {"tlm_sequences_parked", kGauge, "",
     "Running sequences paused by backpressure: their client reads too slowly."},
    {"tlm_queued_tokens", kGauge, "", "Prompt tokens of the waiting requests."},
    {"tlm_queued_text_bytes", kGauge, "", "Text of the requests that wait to be tokenized."},
    {"tlm_estimated_queue_seconds", kGauge, "",
     "Estimated queue time of a request that arrives now, from measured rates."},
    {"tlm_kv_blocks", kGauge, "state",
     "KV blocks: used by sequences, cached (held only by the prefix cache), free."},
    {"tlm_prefix_cache_evicted_blocks_total", kCounter, "",
     "Blocks evicted from the prefix cache."},
    {"tlm_prefix_cache_published_blocks_total", kCounter, "", "Blocks added to the prefix cache."},

    {"tlm_constraints_total", kCounter, "result",
     "Constraints of requests: kept (compiled before), joined (another call has it compiled), "
     "compiled, invalid, too_large, cancelled."},
    {"tlm_constraint_compile_seconds", kHistogram, "",
     "Time to compile a constraint and its first mask, or until it was refused."},
    {"tlm_constraint_mask_wait_seconds", kHistogram, "",
     "Time that a step with constrained outputs waited for which tokens may follow."},
    {"tlm_constrained_tokens_total", kCounter, "kind",
     "Tokens of constrained outputs: sampled, or forced (not sampled)."},

    {"tlm_kv_event_blocks_total", kCounter, "event",
     "Blocks reported by KV events, while they are enabled: stored, removed."},
    {"tlm_kv_event_subscriptions", kGauge, "", "Open subscriptions to KV events, ZMQ being one."},
    {"tlm_kv_event_lost_readers_total", kCounter, "",
     "Times a subscription lost events because it read too slowly, and began anew."},
    {"tlm_kv_event_zmq_dropped_total", kCounter, "",
     "Messages that a subscriber to --kv_events_endpoint missed because it read too slowly."},
    {"tlm_kv_event_history_bytes", kGauge, "", "Memory of the KV events kept for replay."},

    {"tlm_gpu_info", kGauge, "uuid driver",
     "Always 1, with --backend=cuda: the GPU and the version of its driver. The metrics of the GPU "
     "come from NVML, at most once per second; figures that it does not report are absent."},
    {"tlm_gpu_up", kGauge, "",
     "1 while the driver answers for the GPU; 0 when the GPU is lost or the driver hangs, and then "
     "the metrics below are absent."},
    {"tlm_gpu_utilization_ratio", kGauge, "",
     "Part of the time, over up to the last second, in which a kernel of any process ran, 0 to 1."},
    {"tlm_gpu_memory_utilization_ratio", kGauge, "",
     "Part of that time in which the GPU's memory was read or written, 0 to 1."},
    {"tlm_gpu_memory_used_bytes", kGauge, "",
     "The GPU's memory in use by all processes and the driver."},
    {"tlm_gpu_memory_total_bytes", kGauge, "", "All of the GPU's memory."},
    {"tlm_gpu_power_watts", kGauge, "", "Power that the GPU uses."},
    {"tlm_gpu_power_limit_watts", kGauge, "",
     "The most that it may use; clocks are lowered there."},
    {"tlm_gpu_temperature_celsius", kGauge, "", "Temperature of the GPU."},
    {"tlm_gpu_sm_clock_hertz", kGauge, "", "Clock of the multiprocessors."},
    {"tlm_gpu_clock_limited", kGauge, "reason",
     "1 while the reason keeps clocks down: idle, application_clocks, power_cap, hw_slowdown, "
     "sync_boost, sw_thermal, hw_thermal, hw_power_brake, display_clocks."},
    {"tlm_gpu_xid_errors_total", kCounter, "",
     "Xid errors, faults of the GPU, since the server's start. The log has each with its number."},
    {"tlm_gpu_last_xid", kGauge, "", "NVIDIA's number of the last of them; absent without any."},
    {"tlm_gpu_ecc_uncorrected_errors_total", kCounter, "",
     "Uncorrected errors of the GPU's memories since its driver was loaded."},
    {"tlm_gpu_pcie_replays_total", kCounter, "",
     "Transfers that PCI Express repeated since the GPU's driver was loaded."},

    {"tlm_state", kGauge, "state",
     "1 for the current state of the server, 0 for the others: starting, serving, not_serving, "
     "draining, stopped."},
    {"tlm_build_info", kGauge, "version build_id", "Always 1."},
    {"tlm_model_info", kGauge, "model_name backend device fingerprint",
     "Always 1, once the model is loaded."},
    {"tlm_tls_certificate_expiry_timestamp_seconds", kGauge, "",
     "Expiry of the server's certificate, in Unix time."},
    {"tlm_tls_certificate_reloads_total", kCounter, "result",
     "Attempts to load changed certificate files: ok, or error (the old ones stay in use)."},
    {"tlm_api_keys", kGauge, "", "API keys that are valid now."},
    {"tlm_api_key_reloads_total", kCounter, "result",
     "Attempts to load the changed key file: ok, or error (the old keys stay in use)."},
    {"tlm_otlp_spans_total", kCounter, "result",
     "Spans of sampled calls, with --otlp_endpoint: exported; or lost, as the queue was full "
     "(queue_full), the collector refused them (refused), or it did not answer (unreachable)."},
    {"tlm_metrics_scrapes_total", kCounter, "", "Scrapes of /metrics."},

    {"process_cpu_seconds_total", kCounter, "", "CPU time of the process, user and system."},
    {"process_resident_memory_bytes", kGauge, "", "Resident memory."},
    {"process_virtual_memory_bytes", kGauge, "", "Virtual memory."},
    {"process_open_fds", kGauge, "", "Open file descriptors."},
    {"process_max_fds", kGauge, "", "Limit of open file descriptors."},
    {"process_threads", kGauge, "",
     "Threads. The metrics port has 200 of them, idle unless clients hang."},
    {"process_start_time_seconds", kGauge, "", "Start time of the process, in Unix time."},
};

std::string_view KindName(MetricKind kind) {
  switch (kind) {
    case MetricKind::kCounter:
      return "counter";
    case MetricKind::kGauge:
      return "gauge";
    case MetricKind::kHistogram:
      break;
  }
  return "histogram";
}

std::string LabelList(std::string_view labels) {
  std::string list;
  for (const char c : labels) {
    if (c == ' ') {
      list += ", ";
    } else {
      list += c;
    }
  }
  return list;
}

}  // namespace

std::span<const MetricSpec> AllMetrics() { return kMetrics; }

const MetricSpec& MetricNamed(std::string_view name) {
  const auto found = std::find_if(std::begin(kMetrics), std::end(kMetrics),
                                  [&](const MetricSpec& spec) { return spec.name == name; });
  TLM_CHECK(found != std::end(kMetrics));
  return *found;
}

std::string MetricTableMarkdown() {
  std::string table = "| metric | type | labels | what it is |\n|---|---|---|---|\n";
  for (const MetricSpec& spec : kMetrics) {
    table += fmt::format("| `{}` | {} | {} | {} |\n", spec.name, KindName(spec.kind),
                         LabelList(spec.labels), spec.help);
  }
  return table;
}

}  // namespace tlm
