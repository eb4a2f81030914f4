// What `tlm bench` measured.
#ifndef TLM_CLIENT_CLI_BENCH_RESULT_H_
#define TLM_CLIENT_CLI_BENCH_RESULT_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "client/load/latency_histogram.h"

namespace tlm::cli {

// Counts and latencies are of the requests that began in the measured time, wherever they ended;
// rates are of what happened in it, whenever it began. Memory does not grow with the run.
struct BenchResult {
  // Code and reason (empty without one) -> how many failed so.
  using Failures = std::map<std::pair<std::string, std::string>, uint64_t>;

  // At most kMaxKinds kinds are told apart, reasons up to 64 bytes; what is more is counted as
  // {"OTHER", ""}.
  static constexpr size_t kMaxKinds = 64;
  void AddFailure(const std::string& code, const std::string& reason);

  uint64_t sent = 0;  // = ok + failed + cut_off
  uint64_t ok = 0;
  uint64_t failed = 0;
  uint64_t cut_off = 0;   // running when the measurement was interrupted
  uint64_t not_sent = 0;  // due, while as many were in flight as may be
  Failures failures;

  // In the measured time.
  double seconds = 0;
  uint64_t completed = 0;
  uint64_t prompt_tokens = 0;  // of requests whose first token came then, cached or not
  uint64_t output_tokens = 0;

  LatencyHistogram ttft;         // until the first token
  LatencyHistogram inter_token;  // for each token after the first event: its share of the gap
  LatencyHistogram end_to_end;   // of requests that ended well
  LatencyHistogram queue;        // as the server tells: until the first step

  bool interrupted = false;
};

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BENCH_RESULT_H_
