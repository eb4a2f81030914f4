// The common flags of the load benchmarks, and the server they name.
#ifndef TLM_TESTS_BENCHMARKS_LOAD_SESSION_H_
#define TLM_TESTS_BENCHMARKS_LOAD_SESSION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/status/statusor.h"
#include "tests/benchmarks/load/target.h"

ABSL_DECLARE_FLAG(int32_t, connections);

namespace tlm::bench {

// A server to measure: --target names one that runs; --server starts one, with the arguments behind
// "--" on the command line. One thread at a time.
class Session {
 public:
  // `arguments`: what absl::ParseCommandLine left over, the program's name first. The errors of
  // ServerUnderTest::Start and ConnectTo; INVALID_ARGUMENT for arguments without --server.
  static absl::StatusOr<Session> Open(const std::vector<char*>& arguments);

  Target& target() { return target_; }
  const v1::ModelInfoResponse& model() const { return target_.model; }
  // Returns the CPU time of the started server, in seconds; null for a --target.
  std::function<double()> ServerCpu() const;

  // Machine, server and its command line, as the beginning of a JSON report.
  nlohmann::ordered_json Describe() const;
  // Model, processor and date, in a line.
  std::string Title() const;
  // Describe() as a few lines of text.
  std::string Headline() const;

 private:
  bool SharesMachine() const;

  std::string address_;
  std::vector<std::string> server_command_;
  std::unique_ptr<ServerUnderTest> server_;  // null for a --target
  Target target_;
  nlohmann::ordered_json machine_;
};

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_LOAD_SESSION_H_
