// The result of `tlm bench` for people and for programs.
#ifndef TLM_CLIENT_CLI_BENCH_REPORT_H_
#define TLM_CLIENT_CLI_BENCH_REPORT_H_

#include <ostream>
#include <string>
#include <vector>

#include "client/cli/bench_options.h"
#include "client/cli/bench_result.h"

namespace tlm::cli {

// What was measured.
struct BenchSubject {
  std::vector<std::string> targets;
  std::string model;   // as the server names it
  std::string server;  // its version and device
};

// "8 in flight", "12.5/s, at most 1,024 in flight".
std::string DescribeLoad(const BenchOptions& options);

void PrintBenchTables(const BenchSubject& subject, const BenchOptions& options,
                      const BenchResult& result, std::ostream& out);

// One object on one line: times in seconds, unrounded; null where nothing was measured.
void PrintBenchJson(const BenchSubject& subject, const BenchOptions& options,
                    const BenchResult& result, std::ostream& out);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BENCH_REPORT_H_
