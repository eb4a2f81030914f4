// Other programs as children, and what they cost.
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

// A directory of its own, gone with all it holds when the object dies.
class ScratchDir {
 public:
  // INTERNAL when the system refuses.
  static absl::StatusOr<std::unique_ptr<ScratchDir>> Create();
  ~ScratchDir();
  ScratchDir(const ScratchDir&) = delete;
  ScratchDir& operator=(const ScratchDir&) = delete;

  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  explicit ScratchDir(std::string path) : path_(std::move(path)) {}

  const std::string path_;
};

// A child process; it dies with this one. Not thread-safe.
class Process {
 public:
  // Runs `argv[0]`, looked up in PATH unless it has a slash, with its output in file `log`. A
  // program that cannot be run ends with status 127.
  static absl::StatusOr<std::unique_ptr<Process>> Start(const std::vector<std::string>& argv,
                                                        const std::string& log);
  // Asks it to end (SIGTERM), and makes it (SIGKILL) when it has not after a while.
  ~Process();

  // Its exit status once it has ended (128 + the signal that killed it); none as long as it runs.
  std::optional<int> Ended();
  // The same, after waiting for it as long as it takes.
  int Wait();
  // Processor time it has used so far, all threads; 0 once it has ended.
  double CpuSeconds() const;
  // The same of its threads of this name, to hundredths of a second.
  double ThreadCpuSeconds(const std::string& name) const;

 private:
  explicit Process(pid_t pid) : pid_(pid) {}

  const pid_t pid_;
  std::optional<int> status_;
};

// Of this process.
double OwnCpuSeconds();

// A server of this project, started for a measurement. The flags --port and --port_file are given
// by this class.
class ServerUnderTest {
 public:
  // Returns when the server has named its port. FAILED_PRECONDITION with what it wrote when it ends
  // instead, DEADLINE_EXCEEDED when it takes longer than `patience`.
  static absl::StatusOr<std::unique_ptr<ServerUnderTest>> Start(std::vector<std::string> argv,
                                                                absl::Duration patience);

  const std::string& target() const { return target_; }
  // As Process's.
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
