// What the engine tells about its steps and the tokens they gave.
#ifndef TLM_SERVER_OBSERVE_ENGINE_METRICS_H_
#define TLM_SERVER_OBSERVE_ENGINE_METRICS_H_

#include <cstdint>

#include "absl/time/time.h"
#include "server/observe/histogram_batch.h"
#include "server/observe/metric_families.h"

namespace tlm {

// Gathers a step's observations without locks and hands them over once a step: tokens come by the
// ten thousand a second. Not thread-safe: the engine thread owns it.
class EngineMetrics {
 public:
  // Of the model of this name; `families` outlives it.
  EngineMetrics(MetricFamilies& families, std::string_view model_name);

  // In the step in progress: a request was started; a token was drawn, `gap` after the one before
  // it of the same output (zero or less: there is none).
  void AddPrompt(int64_t tokens) { prompt_tokens_ += tokens; }
  void AddToken(absl::Duration gap) {
    ++drawn_tokens_;
    if (gap > absl::ZeroDuration()) gaps_.Add(absl::ToDoubleSeconds(gap));
  }
  // The step has ended. `tokens`: that it computed, prefill and decode together; none when it
  // failed.
  void EndStep(int64_t tokens, absl::Duration elapsed);

 private:
  HistogramBatch gaps_;
  int64_t prompt_tokens_ = 0;
  int64_t drawn_tokens_ = 0;
  prometheus::Histogram& inter_token_;
  prometheus::Histogram& time_per_output_token_;
  prometheus::Histogram& iteration_tokens_;
  prometheus::Histogram& step_seconds_;
  prometheus::Counter& prompt_tokens_total_;
  prometheus::Counter& generation_tokens_total_;
};

}  // namespace tlm

#endif  // TLM_SERVER_OBSERVE_ENGINE_METRICS_H_
