#include "server/observe/metric_families.h"

#include <algorithm>

#include "model/base/errors.h"
#include "model/text/utf8.h"

namespace tlm {
namespace {

// A single value that is not UTF-8, from a certificate or a directory name, would make Prometheus
// reject the whole scrape.
std::string Printable(std::string_view value) {
  std::string text(value);
  if (!IsValidUtf8(text)) {
    std::replace_if(
        text.begin(), text.end(), [](char c) { return (c & 0x80) != 0; }, '?');
  }
  return text;
}

template <typename Builder>
auto& Registered(Builder builder, const MetricSpec& spec, prometheus::Registry& registry) {
  return builder.Name(std::string(spec.name)).Help(std::string(spec.help)).Register(registry);
}

}  // namespace

prometheus::Labels LabelsOf(const MetricSpec& spec, LabelValues values) {
  prometheus::Labels labels;
  std::string_view names = spec.labels;
  for (const std::string_view value : values) {
    TLM_CHECK(!names.empty());
    const size_t end = names.find(' ');
    labels.emplace(names.substr(0, end), Printable(value));
    names = end == std::string_view::npos ? std::string_view() : names.substr(end + 1);
  }
  TLM_CHECK(names.empty());
  return labels;
}

MetricFamilies::MetricFamilies() {
  for (const MetricSpec& spec : AllMetrics()) {
    switch (spec.kind) {
      case MetricKind::kCounter:
        counters_[spec.name] = &Registered(prometheus::BuildCounter(), spec, registry_);
        break;
      case MetricKind::kGauge:
        gauges_[spec.name] = &Registered(prometheus::BuildGauge(), spec, registry_);
        break;
      case MetricKind::kHistogram:
        histograms_[spec.name] = &Registered(prometheus::BuildHistogram(), spec, registry_);
        break;
    }
  }
}

prometheus::Counter& MetricFamilies::Counter(std::string_view name, LabelValues values) {
  return counters_.at(name)->Add(LabelsOf(MetricNamed(name), values));
}

prometheus::Gauge& MetricFamilies::Gauge(std::string_view name, LabelValues values) {
  return gauges_.at(name)->Add(LabelsOf(MetricNamed(name), values));
}

prometheus::Histogram& MetricFamilies::Histogram(std::string_view name, LabelValues values,
                                                 const std::vector<double>& buckets) {
  return histograms_.at(name)->Add(LabelsOf(MetricNamed(name), values), buckets);
}

std::vector<double> FirstTokenBuckets() {
  return {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25,  0.5,   0.75,
          1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0};
}

std::vector<double> InterTokenBuckets() {
  return {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,  0.3,  0.4, 0.5,
          0.75, 1.0,   2.5,  5.0,   7.5, 10.0, 20.0, 40.0, 80.0};
}

std::vector<double> RequestTimeBuckets() {
  return {0.3,  0.5,  0.8,  1.0,  1.5,   2.0,   2.5,   5.0,   10.0,   15.0,  20.0,
          30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};
}

std::vector<double> StepTimeBuckets() {
  return {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01,
          0.025,  0.05,    0.1,    0.25,  0.5,    1.0,   5.0};
}

std::vector<double> LatencyBuckets() {
  return {0.0001, 0.00015, 0.0002, 0.0003, 0.0005, 0.0007, 0.001, 0.0015, 0.002, 0.003, 0.005,
          0.007,  0.01,    0.015,  0.02,   0.03,   0.05,   0.07,  0.1,    0.15,  0.2,   0.3,
          0.5,    0.7,     1.0,    1.5,    2.0,    3.0,    5.0,   7.0,    10.0,  15.0,  20.0,
          30.0,   50.0,    70.0,   100.0,  150.0,  200.0,  300.0, 500.0,  700.0, 1000.0};
}

std::vector<double> StepTokenBuckets() {
  return {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
}

std::vector<double> RequestTokenBuckets(int64_t max_context) {
  std::vector<double> bounds;
  for (int64_t power = 1; power <= max_context; power *= 10) {
    for (const int64_t mantissa : {1, 2, 5}) {
      if (mantissa * power <= max_context) bounds.push_back(static_cast<double>(mantissa * power));
    }
  }
  return bounds;
}

}  // namespace tlm
