// Plots of measurements, by gnuplot.
#ifndef TLM_TESTS_BENCHMARKS_LOAD_PLOT_H_
#define TLM_TESTS_BENCHMARKS_LOAD_PLOT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/benchmarks/load/metrics.h"

namespace tlm::bench {

// Plots latency (TTFT and inter-token, p50 and p99) and, below it, goodput against the offered load
// into `path`, a .svg or .png. INVALID_ARGUMENT for another suffix, FAILED_PRECONDITION with
// gnuplot's output if it fails or is not installed.
absl::Status PlotLoadCurve(const std::vector<PointMetrics>& points, const std::string& title,
                           const std::string& path);

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_LOAD_PLOT_H_
