#include "server/observe/request_metrics.h"

namespace tlm {
namespace {

// Returns the finish reason in vLLM's terms.
std::string_view FinishedReason(const CallSummary& call) {
  switch (call.code) {
    case absl::StatusCode::kOk:
      break;
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kDeadlineExceeded:
      return "abort";
    default:
      return "error";
  }
  const bool length =
      call.finish == "length" || call.finish == "context_length" || call.finish == "time_limit";
  return length ? "length" : "stop";
}

}  // namespace

RequestMetrics::RequestMetrics(MetricFamilies& families, std::string_view model_name,
                               int64_t max_context)
    : families_(families),
      model_name_(model_name),
      first_token_{families.Histogram("vllm:time_to_first_token_seconds",
                                      {model_name, kEngineLabel}, FirstTokenBuckets()),
                   Fine("tlm_time_to_first_token_seconds")},
      total_{Times("vllm:e2e_request_latency_seconds"), Fine("tlm_e2e_request_latency_seconds")},
      queue_{Times("vllm:request_queue_time_seconds"), Fine("tlm_request_queue_time_seconds")},
      prefill_(Times("vllm:request_prefill_time_seconds")),
      decode_(Times("vllm:request_decode_time_seconds")),
      inference_(Times("vllm:request_inference_time_seconds")),
      prompt_tokens_(families.Histogram("vllm:request_prompt_tokens", {model_name, kEngineLabel},
                                        RequestTokenBuckets(max_context))),
      generation_tokens_(families.Histogram("vllm:request_generation_tokens",
                                            {model_name, kEngineLabel},
                                            RequestTokenBuckets(max_context))) {
  // Creates all counters at once: the rate of a counter that appears later misses its first event.
  for (const std::string_view reason : {"stop", "length", "abort", "error"}) {
    families_.Counter("vllm:request_success_total", {model_name_, kEngineLabel, reason});
  }
}

prometheus::Histogram& RequestMetrics::Times(std::string_view name) {
  return families_.Histogram(name, {model_name_, kEngineLabel}, RequestTimeBuckets());
}

prometheus::Histogram& RequestMetrics::Fine(std::string_view name) {
  return families_.Histogram(name, {model_name_}, LatencyBuckets());
}

void RequestMetrics::RecordEnd(const CallSummary& call) {
  families_.Counter("vllm:request_success_total", {model_name_, kEngineLabel, FinishedReason(call)})
      .Increment();
  total_.Observe(call.total);
  if (call.queue.has_value()) queue_.Observe(*call.queue);
  prompt_tokens_.Observe(static_cast<double>(call.prompt_tokens));
  if (!call.prefill.has_value() || !call.decode.has_value()) return;
  prefill_.Observe(absl::ToDoubleSeconds(*call.prefill));
  decode_.Observe(absl::ToDoubleSeconds(*call.decode));
  inference_.Observe(absl::ToDoubleSeconds(*call.prefill + *call.decode));
  generation_tokens_.Observe(static_cast<double>(call.completion_tokens));
}

}  // namespace tlm
