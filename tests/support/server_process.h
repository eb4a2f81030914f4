// The real tlm-server, or another program, as a child process.
#ifndef TLM_TESTS_SUPPORT_SERVER_PROCESS_H_
#define TLM_TESTS_SUPPORT_SERVER_PROCESS_H_

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "model/base/mutex.h"

namespace tlm {

// The bundled model's directory, and the server binary of this build.
std::string DemoModelDir();
std::string ServerBinary();

// Collects what the child writes. Killed when the object dies. Not thread-safe.
class ServerProcess {
 public:
  // How long anything here is waited for before the test fails.
  static constexpr absl::Duration kPatience = absl::Seconds(60);

  // Starts `tlm-server` with these arguments and nothing else.
  explicit ServerProcess(const std::vector<std::string>& arguments)
      : ServerProcess(ServerBinary(), arguments) {}
  // Starts another program. `environment` are further variables: "NAME=VALUE".
  ServerProcess(const std::string& program, const std::vector<std::string>& arguments,
                const std::vector<std::string>& environment = {});
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  // Starts one on the bundled model and a free port, without a withdrawal grace, and waits until it
  // serves. `extra` come last.
  static std::unique_ptr<ServerProcess> Serve(const std::vector<std::string>& extra = {});

  // Waits until its output holds `text`, `times` times; false when it ended, or kPatience passed,
  // without it.
  bool WaitForOutput(std::string_view text, int times = 1);
  // The port it says it serves on; 0 when it does not.
  int port();
  // "127.0.0.1:port"
  std::string address();

  pid_t pid() const { return pid_; }
  void Signal(int signal);
  // Waits for the end. The exit status; -N when signal N ended it; none when kPatience passed.
  std::optional<int> Wait();

  // Standard output and standard error so far, mixed.
  std::string output();

 private:
  void ReadOutput(int descriptor);

  pid_t pid_ = -1;
  bool reaped_ = false;
  Mutex mutex_;
  CondVar changed_;
  std::string output_ TLM_GUARDED_BY(mutex_);
  bool closed_ TLM_GUARDED_BY(mutex_) = false;
  std::thread reader_;  // last: uses the others
};

// Runs it to its end; output and exit status.
struct ServerRun {
  std::optional<int> exit_status;
  std::string output;
};
ServerRun RunServerToTheEnd(const std::vector<std::string>& arguments);

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_SERVER_PROCESS_H_
