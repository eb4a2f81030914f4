#include "server/observe/engine_metrics.h"

#include <utility>

namespace tlm {

EngineMetrics::EngineMetrics(MetricFamilies& families, std::string_view model_name,
                             int64_t max_draft_tokens)
    : families_(families),
      model_name_(model_name),
      gaps_(LatencyBuckets()),
      coarse_gaps_(InterTokenBuckets()),
      inter_token_(
          families.Histogram("tlm_inter_token_latency_seconds", {model_name}, LatencyBuckets())),
      vllm_inter_token_(families.Histogram("vllm:inter_token_latency_seconds",
                                           {model_name, kEngineLabel}, InterTokenBuckets())),
      vllm_time_per_output_token_(families.Histogram(
          "vllm:time_per_output_token_seconds", {model_name, kEngineLabel}, InterTokenBuckets())),
      iteration_tokens_(families.Histogram("vllm:iteration_tokens_total",
                                           {model_name, kEngineLabel}, StepTokenBuckets())),
      step_seconds_(families.Histogram("tlm_engine_step_seconds", {}, StepTimeBuckets())),
      prompt_tokens_total_(
          families.Counter("vllm:prompt_tokens_total", {model_name, kEngineLabel})),
      generation_tokens_total_(
          families.Counter("vllm:generation_tokens_total", {model_name, kEngineLabel})),
      mask_wait_seconds_(
          families.Histogram("tlm_constraint_mask_wait_seconds", {}, LatencyBuckets())),
      drawn_tokens_total_(families.Counter("tlm_constrained_tokens_total", {"drawn"})),
      forced_tokens_total_(families.Counter("tlm_constrained_tokens_total", {"forced"})),
      drafts_total_(
          families.Counter("vllm:spec_decode_num_drafts_total", {model_name, kEngineLabel})),
      drafted_tokens_total_(
          families.Counter("vllm:spec_decode_num_draft_tokens_total", {model_name, kEngineLabel})),
      accepted_tokens_total_(families.Counter("vllm:spec_decode_num_accepted_tokens_total",
                                              {model_name, kEngineLabel})) {
  accepted_at_.resize(static_cast<size_t>(max_draft_tokens));
  EndDrafts();
}

void EngineMetrics::EndStep(int64_t tokens, absl::Duration elapsed) {
  if (tokens > 0) {
    iteration_tokens_.Observe(static_cast<double>(tokens));
    step_seconds_.Observe(absl::ToDoubleSeconds(elapsed));
  }
  prompt_tokens_total_.Increment(static_cast<double>(std::exchange(prompt_tokens_, 0)));
  generation_tokens_total_.Increment(static_cast<double>(std::exchange(sampled_tokens_, 0)));
  drawn_tokens_total_.Increment(static_cast<double>(std::exchange(drawn_tokens_, 0)));
  forced_tokens_total_.Increment(static_cast<double>(std::exchange(forced_tokens_, 0)));
  if (mask_wait_.has_value()) mask_wait_seconds_.Observe(absl::ToDoubleSeconds(*mask_wait_));
  mask_wait_.reset();
  EndDrafts();
  if (gaps_.empty()) return;
  gaps_.AddTo(inter_token_);
  gaps_.Clear();
  coarse_gaps_.AddTo(vllm_inter_token_);
  coarse_gaps_.AddTo(vllm_time_per_output_token_);
  coarse_gaps_.Clear();
}

void EngineMetrics::EndDrafts() {
  for (size_t i = accepted_at_total_.size(); i < accepted_at_.size(); ++i) {
    accepted_at_total_.push_back(
        &families_.Counter("vllm:spec_decode_num_accepted_tokens_per_pos_total",
                           {model_name_, kEngineLabel, std::to_string(i)}));
  }
  if (drafts_ == 0) return;
  drafts_total_.Increment(static_cast<double>(std::exchange(drafts_, 0)));
  drafted_tokens_total_.Increment(static_cast<double>(std::exchange(drafted_tokens_, 0)));
  for (size_t i = 0; i < accepted_at_.size(); ++i) {
    const double accepted = static_cast<double>(std::exchange(accepted_at_[i], 0));
    accepted_tokens_total_.Increment(accepted);
    accepted_at_total_[i]->Increment(accepted);
  }
}

}  // namespace tlm
