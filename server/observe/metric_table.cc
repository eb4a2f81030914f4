#include "server/observe/metric_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/base/errors.h"

namespace tlm {
namespace {

constexpr MetricKind kCounter = MetricKind::kCounter;
constexpr MetricKind kGauge = MetricKind::kGauge;
constexpr MetricKind kHistogram = MetricKind::kHistogram;

// What vLLM (0.9 and later) has too is named as vLLM names it, with its labels and buckets.
constexpr std::string_view kModel = "model_name engine";

constexpr MetricSpec kMetrics[] = {
    {"vllm:num_requests_running", kGauge, kModel,
     "Sequences that hold KV blocks; a request for several outputs counts once for each."},
    {"vllm:num_requests_waiting", kGauge, kModel,
     "Requests that wait for their first step, and sequences that were preempted."},
    {"vllm:kv_cache_usage_perc", kGauge, kModel,
     "Fraction of the KV blocks that sequences use, 0 to 1; what only the prefix cache holds is "
     "free on demand and does not count."},
    {"vllm:gpu_cache_usage_perc", kGauge, kModel,
     "vllm:kv_cache_usage_perc under its older name, which routers read."},
    {"vllm:prefix_cache_queries_total", kCounter, kModel,
     "Tokens of whole KV blocks that were looked up in the prefix cache."},
    {"vllm:prefix_cache_hits_total", kCounter, kModel, "Those of them that were found."},
    {"vllm:gpu_prefix_cache_queries_total", kCounter, kModel,
     "vllm:prefix_cache_queries_total under its older name."},
    {"vllm:gpu_prefix_cache_hits_total", kCounter, kModel,
     "vllm:prefix_cache_hits_total under its older name."},
    {"vllm:num_preemptions_total", kCounter, kModel,
     "Sequences whose KV blocks were taken for others; they are computed anew."},
    {"vllm:prompt_tokens_total", kCounter, kModel,
     "Prompt tokens of requests that were started, those found in the prefix cache included."},
    {"vllm:generation_tokens_total", kCounter, kModel, "Tokens drawn."},
    {"vllm:request_success_total", kCounter, "model_name engine finished_reason",
     "Admitted requests that ended, by how: stop (end of sequence, stop token or string, all of "
     "Forward and Score), length (also of the context, and time limits), abort (cancelled, "
     "aborted, deadline passed), error."},
    {"vllm:request_prompt_tokens", kHistogram, kModel, "Prompt tokens of a request that ended."},
    {"vllm:request_generation_tokens", kHistogram, kModel,
     "Tokens generated for a Generate request that ended, over all its outputs."},
    {"vllm:iteration_tokens_total", kHistogram, kModel,
     "Tokens that an engine step computed, prefill and decode together."},
    {"vllm:time_to_first_token_seconds", kHistogram, kModel,
     "From the arrival of a Generate request to its first token."},
    {"vllm:inter_token_latency_seconds", kHistogram, kModel,
     "From one token of an output to the next, as the engine draws them."},
    {"vllm:time_per_output_token_seconds", kHistogram, kModel,
     "vllm:inter_token_latency_seconds under its older name."},
    {"vllm:e2e_request_latency_seconds", kHistogram, kModel,
     "From the arrival of an admitted request to its end, the last write included."},
    {"vllm:request_queue_time_seconds", kHistogram, kModel,
     "From being queued to the first step, of requests that were started."},
    {"vllm:request_prefill_time_seconds", kHistogram, kModel,
     "From the first step to the first token, of Generate requests that ended well."},
    {"vllm:request_decode_time_seconds", kHistogram, kModel,
     "From the first token to the last, of Generate requests that ended well."},
    {"vllm:request_inference_time_seconds", kHistogram, kModel,
     "From the first step to the last token, of Generate requests that ended well."},
    {"vllm:cache_config_info", kGauge,
     "model_name engine block_size cache_dtype enable_prefix_caching num_gpu_blocks",
     "Always 1; its labels tell how the KV cache is laid out."},

    {"tlm_requests_admitted_total", kCounter, "rpc tenant",
     "Requests that were taken on. Each of them ends in exactly one sample of "
     "tlm_requests_ended_total."},
    {"tlm_requests_ended_total", kCounter, "rpc tenant code reason",
     "Admitted requests that are over, however they ended: gRPC code, and the reason the status "
     "gives, if any."},
    {"tlm_requests_refused_total", kCounter, "rpc tenant code reason",
     "Requests that were never taken on: bad credentials or arguments, limits, full queue, "
     "starting, draining."},
    {"tlm_requests_in_flight", kGauge, "rpc tenant",
     "Admitted requests that are not over: admitted less ended."},
    {"tlm_outputs_finished_total", kCounter, "reason",
     "Outputs of Generate that ended well, by what ended them: eos, stop_token, stop_string, "
     "length, context_length, time_limit."},
    {"tlm_tenant_prompt_tokens_total", kCounter, "tenant",
     "Prompt tokens of the tenant's requests that ended after they had begun."},
    {"tlm_tenant_cached_prompt_tokens_total", kCounter, "tenant",
     "Those of them that came from the prefix cache."},
    {"tlm_tenant_generation_tokens_total", kCounter, "tenant",
     "Tokens generated for the tenant's requests that ended."},

    {"tlm_engine_steps_total", kCounter, "", "Engine steps, failed ones included."},
    {"tlm_engine_step_seconds", kHistogram, "",
     "From the end of one engine step to the end of the next, without pauses."},
    {"tlm_engine_prefill_tokens_total", kCounter, "",
     "Prompt tokens computed, those of preempted sequences again; not those from the cache."},
    {"tlm_engine_decode_tokens_total", kCounter, "", "Generated tokens computed."},
    {"tlm_engine_failed_steps", kGauge, "",
     "Engine steps that failed since the last one that did not."},
    {"tlm_engine_last_progress_age_seconds", kGauge, "",
     "Since the end of the last step, or 0 while there is nothing to do."},
    {"tlm_sequences_parked", kGauge, "",
     "Running sequences that wait for a reader who does not keep up."},
    {"tlm_queued_tokens", kGauge, "", "Prompt tokens of the waiting requests."},
    {"tlm_estimated_queue_seconds", kGauge, "",
     "How long a request that arrives now would wait, by the measured rates."},
    {"tlm_kv_blocks", kGauge, "state",
     "KV blocks: used by sequences, cached (held by the prefix cache alone), free."},
    {"tlm_prefix_cache_evicted_blocks_total", kCounter, "",
     "Blocks that the prefix cache gave up for others."},
    {"tlm_prefix_cache_published_blocks_total", kCounter, "",
     "Blocks that the prefix cache was given."},

    {"tlm_state", kGauge, "state",
     "1 for the state the server is in, 0 for the others: starting, serving, not_serving, "
     "draining, stopped."},
    {"tlm_build_info", kGauge, "version build_id", "Always 1."},
    {"tlm_model_info", kGauge, "model_name backend device fingerprint",
     "Always 1, once the model is loaded."},
    {"tlm_tls_certificate_expiry_timestamp_seconds", kGauge, "",
     "When the server's certificate ends, in Unix time."},
    {"tlm_tls_certificate_reloads_total", kCounter, "result",
     "Attempts to read changed certificate files: ok, or error (the old ones stay)."},
    {"tlm_api_keys", kGauge, "", "API keys that are accepted now."},
    {"tlm_api_key_reloads_total", kCounter, "result",
     "Attempts to read the changed key file: ok, or error (the old keys stay)."},
    {"tlm_metrics_scrapes_total", kCounter, "", "Answers of /metrics begun."},

    {"process_cpu_seconds_total", kCounter, "", "Processor time of the process, user and system."},
    {"process_resident_memory_bytes", kGauge, "", "Resident memory."},
    {"process_virtual_memory_bytes", kGauge, "", "Virtual memory."},
    {"process_open_fds", kGauge, "", "Open file descriptors."},
    {"process_max_fds", kGauge, "", "The limit of open file descriptors."},
    {"process_threads", kGauge, "", "Threads."},
    {"process_start_time_seconds", kGauge, "", "When the process started, in Unix time."},
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
