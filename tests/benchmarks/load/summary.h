// Statistics of measured values.
#ifndef TLM_TESTS_BENCHMARKS_LOAD_SUMMARY_H_
#define TLM_TESTS_BENCHMARKS_LOAD_SUMMARY_H_

#include <cstdint>

#include "client/load/latency_histogram.h"

namespace tlm::bench {

// All 0 without values.
struct Summary {
  uint64_t count = 0;
  double mean = 0;
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
  double max = 0;
};

inline Summary Summarize(const load::LatencyHistogram& histogram) {
  return {.count = histogram.count(),
          .mean = histogram.mean(),
          .p50 = histogram.Percentile(50),
          .p90 = histogram.Percentile(90),
          .p99 = histogram.Percentile(99),
          .max = histogram.max()};
}

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_LOAD_SUMMARY_H_
