// The real tlm-server as a child process.
#ifndef TLM_TESTS_SUPPORT_SERVER_PROCESS_H_
#define TLM_TESTS_SUPPORT_SERVER_PROCESS_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/process.h"

namespace tlm {

// The bundled model's directory, and the server binary of this build.
std::string DemoModelDir();
std::string ServerBinary();

// Not thread-safe.
class ServerProcess : public Process {
 public:
  using Process::Process;

  // Starts tlm-server on the bundled model and a free port, without a withdrawal grace, and waits
  // until it serves. `extra` come last.
  static std::unique_ptr<ServerProcess> Serve(const std::vector<std::string>& extra = {});

  // The port it says it serves on; 0 when it does not.
  int port() const;
  // "127.0.0.1:port"
  std::string address() const;
};

// Runs tlm-server with these arguments and nothing else to its end; output and exit status.
struct ServerRun {
  std::optional<int> exit_status;
  std::string output;
};
ServerRun RunServerToTheEnd(const std::vector<std::string>& arguments);

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_SERVER_PROCESS_H_
