// Lists every metric of the server: the only source for the code and server/observe/README.md.
#ifndef TLM_SERVER_OBSERVE_METRIC_TABLE_H_
#define TLM_SERVER_OBSERVE_METRIC_TABLE_H_

#include <span>
#include <string>
#include <string_view>

namespace tlm {

enum class MetricKind { kCounter, kGauge, kHistogram };

struct MetricSpec {
  std::string_view name;
  MetricKind kind = MetricKind::kCounter;
  std::string_view labels;  // in the order of their values, "rpc tenant"; may be empty
  std::string_view help;
};

// Returns all metrics, in the order of the documentation.
std::span<const MetricSpec> AllMetrics();

// Returns the metric of this name, which must exist.
const MetricSpec& MetricNamed(std::string_view name);

// AllMetrics as a Markdown table.
std::string MetricTableMarkdown();

}  // namespace tlm

#endif  // TLM_SERVER_OBSERVE_METRIC_TABLE_H_
