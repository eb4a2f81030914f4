// Statistics of numbers measured, exact: from all of them.
#ifndef TLM_TESTS_BENCHMARKS_LOAD_SUMMARY_H_
#define TLM_TESTS_BENCHMARKS_LOAD_SUMMARY_H_

#include <cstddef>
#include <vector>

namespace tlm::bench {

// Percentiles by nearest rank: the smallest value that at least so many per cent of the values do
// not exceed. All of it 0 when there are no values.
struct Summary {
  size_t count = 0;
  double mean = 0;
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
  double max = 0;
};

Summary Summarize(std::vector<double> values);

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_LOAD_SUMMARY_H_
