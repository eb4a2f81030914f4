// The server that is measured.
#ifndef TLM_TESTS_BENCHMARKS_LOAD_TARGET_H_
#define TLM_TESTS_BENCHMARKS_LOAD_TARGET_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/load/generate_call.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"
#include "tlm/v1/model_info.pb.h"

namespace tlm::bench {

// A server started for a measurement. This class sets its flags --port and --port_file.
class ServerUnderTest {
 public:
  // Returns when the server listens. FAILED_PRECONDITION with its output if it ends,
  // DEADLINE_EXCEEDED after `timeout`.
  static absl::StatusOr<std::unique_ptr<ServerUnderTest>> Start(std::vector<std::string> argv,
                                                                absl::Duration timeout);
  ~ServerUnderTest();

  const std::string& target() const { return target_; }
  const Process& process() const { return *process_; }

 private:
  ServerUnderTest() = default;

  const TempDir directory_;
  std::optional<Process> process_;
  std::string target_;
};

struct Target {
  load::Connections connections;
  v1::ModelInfoResponse model;
};

// Waits up to `timeout` for the server, asks it for ModelInfo, and establishes `connections`, by
// the protocol of the flag --vllm. FAILED_PRECONDITION for a number out of range; errors of
// Client::ModelInfo.
absl::StatusOr<Target> ConnectTo(const std::string& address, int connections,
                                 absl::Duration timeout);

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_LOAD_TARGET_H_
