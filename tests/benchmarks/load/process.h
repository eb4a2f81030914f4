// Child processes and their CPU time.
#ifndef TLM_TESTS_BENCHMARKS_LOAD_PROCESS_H_
#define TLM_TESTS_BENCHMARKS_LOAD_PROCESS_H_

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tlm::bench {

// A temporary directory, which the destructor removes.
class ScratchDir {
 public:
  // INTERNAL if it cannot be created.
  static absl::StatusOr<std::unique_ptr<ScratchDir>> Create();
  ~ScratchDir();
  ScratchDir(const ScratchDir&) = delete;
  ScratchDir& operator=(const ScratchDir&) = delete;

  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  explicit ScratchDir(std::string path) : path_(std::move(path)) {}

  const std::string path_;
};

// A child process, killed when this process ends. Not thread-safe.
class Process {
 public:
  // Runs `argv[0]`, looked up in PATH unless it has a slash, with its output in file `log`. A
  // program that cannot be run ends with status 127.
  static absl::StatusOr<std::unique_ptr<Process>> Start(const std::vector<std::string>& argv,
                                                        const std::string& log);
  // Ends it with SIGTERM or, after a timeout, SIGKILL.
  ~Process();

  // Its exit status (128 + the signal that killed it); none while it runs.
  std::optional<int> Ended();
  // Waits for its end; the exit status.
  int Wait();
  // CPU time of all threads so far; 0 once it has ended.
  double CpuSeconds() const;
  // CPU time of its threads of this name, to hundredths of a second.
  double ThreadCpuSeconds(const std::string& name) const;

 private:
  explicit Process(pid_t pid) : pid_(pid) {}

  const pid_t pid_;
  std::optional<int> status_;
};

// CPU time of this process.
double OwnCpuSeconds();

// A server started for a measurement. This class sets its flags --port and --port_file.
class ServerUnderTest {
 public:
  // Returns when the server listens. FAILED_PRECONDITION with its output if it ends,
  // DEADLINE_EXCEEDED after `timeout`.
  static absl::StatusOr<std::unique_ptr<ServerUnderTest>> Start(std::vector<std::string> argv,
                                                                absl::Duration timeout);

  const std::string& target() const { return target_; }
  // See Process.
  double CpuSeconds() const { return process_->CpuSeconds(); }
  double ThreadCpuSeconds(const std::string& name) const {
    return process_->ThreadCpuSeconds(name);
  }

 private:
  ServerUnderTest() = default;

  std::unique_ptr<ScratchDir> directory_;
  std::unique_ptr<Process> process_;
  std::string target_;
};

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_LOAD_PROCESS_H_
