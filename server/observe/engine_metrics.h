// Records metrics of engine steps and of the tokens they sampled.
#ifndef TLM_SERVER_OBSERVE_ENGINE_METRICS_H_
#define TLM_SERVER_OBSERVE_ENGINE_METRICS_H_

#include <prometheus/histogram.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "server/observe/metric_families.h"

namespace tlm {

// Gathers observations of one histogram. Not thread-safe.
class HistogramBatch {
 public:
  // `bounds` ascend: the inclusive upper bounds of the histogram's buckets.
  explicit HistogramBatch(std::vector<double> bounds)
      : bounds_(std::move(bounds)), counts_(bounds_.size() + 1, 0.0) {}

  void Add(double value) {
    const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value);
    ++counts_[static_cast<size_t>(bucket - bounds_.begin())];
    sum_ += value;
    empty_ = false;
  }
  bool empty() const { return empty_; }
  // `histogram` must have the same bounds.
  void AddTo(prometheus::Histogram& histogram) const { histogram.ObserveMultiple(counts_, sum_); }
  void Clear() {
    std::fill(counts_.begin(), counts_.end(), 0.0);
    sum_ = 0;
    empty_ = true;
  }

 private:
  const std::vector<double> bounds_;
  std::vector<double> counts_;  // per bucket; the last one has no bound
  double sum_ = 0;
  bool empty_ = true;
};

// Gathers a step's observations without locks and adds them to the histograms once per step,
// because there are tens of thousands of tokens per second. Not thread-safe: the engine thread owns
// it.
class EngineMetrics {
 public:
  // `model_name` is the label of the metrics; drafts have at most `max_draft_tokens` tokens.
  // `families` must outlive this object.
  EngineMetrics(MetricFamilies& families, std::string_view model_name,
                int64_t max_draft_tokens = 0);

  // For the current step: a request was started; a token was sampled, `gap` after the previous one
  // of the same output (zero or less: it is the first).
  void AddPrompt(int64_t tokens) { prompt_tokens_ += tokens; }
  void AddToken(absl::Duration gap) {
    ++sampled_tokens_;
    if (gap <= absl::ZeroDuration()) return;
    const double seconds = absl::ToDoubleSeconds(gap);
    gaps_.Add(seconds);
    coarse_gaps_.Add(seconds);
  }
  // Marks a token that AddToken counted as a constrained output's.
  void AddConstrainedToken(bool forced) { ++(forced ? forced_tokens_ : drawn_tokens_); }
  // A draft of `drafted` tokens was computed, and the first `accepted` of them were right.
  void AddDraft(int64_t drafted, int64_t accepted) {
    ++drafts_;
    drafted_tokens_ += drafted;
    if (static_cast<size_t>(accepted) > accepted_at_.size()) accepted_at_.resize(accepted);
    for (int64_t i = 0; i < accepted; ++i) ++accepted_at_[i];
  }
  // The current step waited `time` for masks; the longest time counts.
  void AddMaskWait(absl::Duration time) {
    mask_wait_ = std::max(mask_wait_.value_or(absl::ZeroDuration()), time);
  }
  // The step has ended. `tokens` counts prefill and decode together; 0 if the step failed.
  void EndStep(int64_t tokens, absl::Duration elapsed);

 private:
  void EndDrafts();

  MetricFamilies& families_;
  const std::string model_name_;
  HistogramBatch gaps_;
  HistogramBatch coarse_gaps_;  // in vLLM's buckets
  int64_t prompt_tokens_ = 0;
  int64_t sampled_tokens_ = 0;
  int64_t drawn_tokens_ = 0;  // sampled tokens of constrained outputs
  int64_t forced_tokens_ = 0;
  int64_t drafts_ = 0;
  int64_t drafted_tokens_ = 0;
  std::vector<int64_t> accepted_at_;  // drafts whose token of this index was accepted
  std::optional<absl::Duration> mask_wait_;
  prometheus::Histogram& inter_token_;
  prometheus::Histogram& vllm_inter_token_;
  prometheus::Histogram& vllm_time_per_output_token_;
  prometheus::Histogram& iteration_tokens_;
  prometheus::Histogram& step_seconds_;
  prometheus::Counter& prompt_tokens_total_;
  prometheus::Counter& generation_tokens_total_;
  prometheus::Histogram& mask_wait_seconds_;
  prometheus::Counter& drawn_tokens_total_;
  prometheus::Counter& forced_tokens_total_;
  prometheus::Counter& drafts_total_;
  prometheus::Counter& drafted_tokens_total_;
  prometheus::Counter& accepted_tokens_total_;
  std::vector<prometheus::Counter*> accepted_at_total_;  // one for each element of accepted_at_
};

}  // namespace tlm

#endif  // TLM_SERVER_OBSERVE_ENGINE_METRICS_H_
