// The metrics of a run.
#ifndef TLM_TESTS_BENCHMARKS_LOAD_METRICS_H_
#define TLM_TESTS_BENCHMARKS_LOAD_METRICS_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "client/load/latency_histogram.h"
#include "tests/benchmarks/load/load_run.h"

namespace tlm::bench {

// Statistics of measured values. All 0 without values.
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

// The SLO of a good request, besides its deadline.
struct ServiceLevel {
  double ttft_seconds = std::numeric_limits<double>::infinity();
  double itl_seconds = std::numeric_limits<double>::infinity();  // the request's mean
};

enum class Outcome {
  kCompleted,
  kRefused,  // not admitted: no room, or its deadline cannot be met
  kFailed,   // everything else, a missed deadline too
};

Outcome OutcomeOf(const load::CallRecord& call);

// Requests that failed or were refused in the same way.
struct Ending {
  Outcome outcome = Outcome::kFailed;
  std::string code = {};
  std::string reason = {};  // of ErrorInfo; may be empty
  int64_t count = 0;
  int64_t with_retry_time = 0;  // those with RetryInfo
  Summary seconds = {};         // until the status arrived
  Summary retry_seconds = {};
};

// Counts and latencies cover requests scheduled in the window, whenever they ended; rates count
// events in the window.
struct PointMetrics {
  LoadPoint point = {};
  double window_seconds = 0;

  // offered = completed + refused + failed
  int64_t offered = 0;
  int64_t completed = 0;
  int64_t refused = 0;
  int64_t failed = 0;
  int64_t good = 0;  // of the completed ones

  double offered_per_second = 0;
  double completed_per_second = 0;
  double good_per_second = 0;
  double events_per_second = 0;  // messages with tokens
  double output_tokens_per_second = 0;
  double total_tokens_per_second = 0;  // prompts, cached or not, and outputs

  Summary ttft = {};         // time to the first token
  Summary inter_token = {};  // between successive events of a request that carry tokens
  Summary per_token = {};    // of each request: its mean time for a token after the first event
  Summary end_to_end = {};   // of completed requests
  Summary refusal = {};      // of refused requests, until the status
  Summary lag = {};          // delay between scheduled and actual start: the client's

  double cached_prompt_share = 0;    // of the prompt tokens of started requests
  double client_cpus = 0;            // CPUs used, on average
  double server_cpus = 0;            // 0 if unknown
  std::vector<Ending> endings = {};  // the most frequent first
};

PointMetrics Measure(const RunRecord& run, const ServiceLevel& level);

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_LOAD_METRICS_H_
