#include "tests/benchmarks/load/summary.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tlm::bench {
namespace {

// Of ascending values, at least one.
double NearestRank(const std::vector<double>& ascending, double percent) {
  const double count = static_cast<double>(ascending.size());
  const auto rank = static_cast<size_t>(std::ceil(percent * count / 100.0));
  return ascending[std::max<size_t>(rank, 1) - 1];
}

}  // namespace

Summary Summarize(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {.count = values.size(),
          .mean = sum / static_cast<double>(values.size()),
          .p50 = NearestRank(values, 50),
          .p90 = NearestRank(values, 90),
          .p99 = NearestRank(values, 99),
          .max = values.back()};
}

}  // namespace tlm::bench
