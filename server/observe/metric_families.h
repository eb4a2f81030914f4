// Owns the prometheus-cpp families of the metrics that are updated as events occur.
#ifndef TLM_SERVER_OBSERVE_METRIC_FAMILIES_H_
#define TLM_SERVER_OBSERVE_METRIC_FAMILIES_H_

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string_view>
#include <vector>

#include "server/observe/metric_table.h"

namespace tlm {

// vLLM numbers its engines; this server has one.
inline constexpr std::string_view kEngineLabel = "0";

// The values of a metric's labels, in the order of its spec.
using LabelValues = std::initializer_list<std::string_view>;

// Thread-safe. Returned references live as long as this object; equal arguments give the same one.
class MetricFamilies {
 public:
  MetricFamilies();

  // `name` must be in AllMetrics, of this kind, with as many labels as `values`.
  prometheus::Counter& Counter(std::string_view name, LabelValues values = {});
  prometheus::Gauge& Gauge(std::string_view name, LabelValues values = {});
  prometheus::Histogram& Histogram(std::string_view name, LabelValues values,
                                   const std::vector<double>& buckets);

  // Returns the families that have samples.
  std::vector<prometheus::MetricFamily> Collect() const { return registry_.Collect(); }

 private:
  prometheus::Registry registry_;
  std::map<std::string_view, prometheus::Family<prometheus::Counter>*> counters_;
  std::map<std::string_view, prometheus::Family<prometheus::Gauge>*> gauges_;
  std::map<std::string_view, prometheus::Family<prometheus::Histogram>*> histograms_;
};

// Pairs the label names and values of one sample; their numbers must be equal.
prometheus::Labels LabelsOf(const MetricSpec& spec, LabelValues values);

// Return the bucket bounds of histograms, in seconds; metrics named vllm: have the bounds of vLLM
// 0.9 and later.
std::vector<double> FirstTokenBuckets();
std::vector<double> InterTokenBuckets();
std::vector<double> RequestTimeBuckets();
std::vector<double> StepTimeBuckets();
// 0.1 ms to 1000 s in steps of factor 1.33 to 1.67, for the latencies named tlm_.
std::vector<double> LatencyBuckets();

// Bounds in tokens per step.
std::vector<double> StepTokenBuckets();
// Bounds in tokens per request: 1, 2, 5, 10, 20, ... up to `max_context`.
std::vector<double> RequestTokenBuckets(int64_t max_context);

}  // namespace tlm

#endif  // TLM_SERVER_OBSERVE_METRIC_FAMILIES_H_
