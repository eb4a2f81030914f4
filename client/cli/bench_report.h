// The measurements of `tlm bench` and their report.
#ifndef TLM_CLIENT_CLI_BENCH_REPORT_H_
#define TLM_CLIENT_CLI_BENCH_REPORT_H_

#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "client/load/latency_histogram.h"
#include "client/load/load_generator.h"
#include "tlm/v1/generate.pb.h"

namespace tlm::cli {

struct BenchOptions {
  load::LoadOptions load;
  double timeout_seconds = 0;        // timeout of each request; may be infinite
  uint32_t connections = 1;          // connections to each target
  uint32_t prompt_tokens = 0;        // tokens of random prompts
  std::string prompts_file;          // empty = random prompts
  v1::GenerateRequest request = {};  // without the prompt
};

// The measured server.
struct BenchSubject {
  std::vector<std::string> targets;
  std::string model;   // its name as the server gives it
  std::string server;  // its version and device
};

// Counts and latencies cover requests scheduled in the measured window, no matter when they ended;
// rates count events in the window. Takes constant memory.
struct BenchResult {
  // From code and reason (empty without one) to the number of failures.
  using Failures = std::map<std::pair<std::string, std::string>, uint64_t>;

  // Distinguishes at most kMaxKinds kinds, with reasons of up to 64 bytes; others count as
  // {"OTHER", ""}.
  static constexpr size_t kMaxKinds = 64;
  void AddFailure(const std::string& code, const std::string& reason);

  load::LoadWindow window;  // window.sent = ok + failed + cut_off
  uint64_t ok = 0;
  uint64_t failed = 0;
  uint64_t cut_off = 0;  // running when the measurement was interrupted
  Failures failures;
  uint64_t completed = 0;  // requests that ended in the window with OK

  load::LatencyHistogram ttft;         // time to first token
  load::LatencyHistogram inter_token;  // share of the gap of each token after the first event
  load::LatencyHistogram end_to_end;   // of successful requests
  load::LatencyHistogram queue;        // time until the first step, as the server reports it
};

void PrintBenchTables(const BenchSubject& subject, const BenchOptions& options,
                      const BenchResult& result, std::ostream& out);

// Prints one object on one line: times in seconds, unrounded; null where nothing was measured.
void PrintBenchJson(const BenchSubject& subject, const BenchOptions& options,
                    const BenchResult& result, std::ostream& out);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BENCH_REPORT_H_
