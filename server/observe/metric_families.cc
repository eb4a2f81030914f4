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

}  // namespace tlm
