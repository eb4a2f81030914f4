// Metrics as tables and as JSON.
#ifndef TLM_TESTS_BENCHMARKS_LOAD_REPORT_H_
#define TLM_TESTS_BENCHMARKS_LOAD_REPORT_H_

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/benchmarks/load/metrics.h"

namespace tlm::bench {

// Throughput, latencies and endings of every point.
void PrintTables(const std::vector<PointMetrics>& points, std::ostream& out);

// Seconds and rates, unrounded; null without values.
nlohmann::ordered_json ToJson(const Summary& summary);
nlohmann::ordered_json ToJson(const PointMetrics& metrics);

// Writes `document`, indented. INTERNAL if the file cannot be written.
absl::Status WriteJson(const nlohmann::ordered_json& document, const std::string& path);

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_LOAD_REPORT_H_
