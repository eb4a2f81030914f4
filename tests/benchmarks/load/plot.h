// Pictures of measurements, drawn by gnuplot.
#ifndef TLM_TESTS_BENCHMARKS_LOAD_PLOT_H_
#define TLM_TESTS_BENCHMARKS_LOAD_PLOT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/benchmarks/load/metrics.h"

namespace tlm::bench {

// Latency (TTFT and inter-token, p50 and p99) and goodput against the load offered, one picture
// each above the other, into `path`: SVG, or PNG if it ends so. INVALID_ARGUMENT for another
// ending, FAILED_PRECONDITION with what gnuplot says when it fails or is not there.
absl::Status PlotLoadCurve(const std::vector<PointMetrics>& points, const std::string& title,
                           const std::string& path);

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_LOAD_PLOT_H_
