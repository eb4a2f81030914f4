// Observations of one engine step, gathered without a lock and added to a histogram together.
#ifndef TLM_SERVER_OBSERVE_HISTOGRAM_BATCH_H_
#define TLM_SERVER_OBSERVE_HISTOGRAM_BATCH_H_

#include <prometheus/histogram.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace tlm {

// Not thread-safe.
class HistogramBatch {
 public:
  // `bounds` ascend: the upper bounds of the histogram's buckets, each inclusive.
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
  std::vector<double> counts_;  // of each bucket, the last one without a bound
  double sum_ = 0;
  bool empty_ = true;
};

}  // namespace tlm

#endif  // TLM_SERVER_OBSERVE_HISTOGRAM_BATCH_H_
