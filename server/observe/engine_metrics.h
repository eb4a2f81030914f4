// Metrics of engine steps and of the tokens they sampled.
#ifndef TLM_SERVER_OBSERVE_ENGINE_METRICS_H_
#define TLM_SERVER_OBSERVE_ENGINE_METRICS_H_

#include <cstdint>

#include "absl/time/time.h"
#include "server/observe/histogram_batch.h"
#include "server/observe/metric_families.h"

namespace tlm {

// Gathers a step's observations without locks and adds them to the histograms once a step, as
// there are tens of thousands of tokens per second. Not thread-safe: the engine thread owns it.
class EngineMetrics {
 public:
  // For the model of this name; `families` must outlive this.
  EngineMetrics(MetricFamilies& families, std::string_view model_name);

  // In the step in progress: a request was started; a token was sampled, `gap` after the previous
  // one of the same output (zero or less: it is the first).
  void AddPrompt(int64_t tokens) { prompt_tokens_ += tokens; }
  void AddToken(absl::Duration gap) {
    ++sampled_tokens_;
    if (gap <= absl::ZeroDuration()) return;
    const double seconds = absl::ToDoubleSeconds(gap);
    gaps_.Add(seconds);
    coarse_gaps_.Add(seconds);
  }
  // The step has ended. `tokens` counts prefill and decode together; 0 if the step failed.
  void EndStep(int64_t tokens, absl::Duration elapsed);

 private:
  HistogramBatch gaps_;
  HistogramBatch coarse_gaps_;  // in vLLM's buckets
  int64_t prompt_tokens_ = 0;
  int64_t sampled_tokens_ = 0;
  prometheus::Histogram& inter_token_;
  prometheus::Histogram& vllm_inter_token_;
  prometheus::Histogram& vllm_time_per_output_token_;
  prometheus::Histogram& iteration_tokens_;
  prometheus::Histogram& step_seconds_;
  prometheus::Counter& prompt_tokens_total_;
  prometheus::Counter& generation_tokens_total_;
};

}  // namespace tlm

#endif  // TLM_SERVER_OBSERVE_ENGINE_METRICS_H_
