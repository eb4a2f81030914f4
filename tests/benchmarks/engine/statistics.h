// Statistics of repeated measurements.
#ifndef TLM_TESTS_BENCHMARKS_ENGINE_STATISTICS_H_
#define TLM_TESTS_BENCHMARKS_ENGINE_STATISTICS_H_

#include <vector>

namespace tlm::bench {

// Of at least one value; of an even number the upper one.
double Median(std::vector<double> values);
double Mean(const std::vector<double>& values);
// Of a sample, divided by n - 1; 0 for a single value.
double StandardDeviation(const std::vector<double>& values);

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_ENGINE_STATISTICS_H_
