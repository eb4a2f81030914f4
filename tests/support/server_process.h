// Runs the real tlm-server as a child process.
#ifndef TLM_TESTS_SUPPORT_SERVER_PROCESS_H_
#define TLM_TESTS_SUPPORT_SERVER_PROCESS_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/process.h"

namespace tlm {

// Return the bundled model's directory and the server binary of this build.
std::string DemoModelDir();
std::string ServerBinary();

// Not thread-safe.
class ServerProcess : public Process {
 public:
  using Process::Process;

  // Starts tlm-server on the bundled model and a free port, without a withdrawal grace, and waits
  // until it serves. `extra` arguments come last.
  static std::unique_ptr<ServerProcess> Serve(const std::vector<std::string>& extra = {});

  // Returns the port that the server reports; 0 without a report.
  int port() const;
  // Returns "127.0.0.1:port".
  std::string address() const;
};

// Output and exit status of a run of tlm-server with only these arguments.
struct ServerRun {
  std::optional<int> exit_status;
  std::string output;
};
ServerRun RunServerToTheEnd(const std::vector<std::string>& arguments);

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_SERVER_PROCESS_H_
