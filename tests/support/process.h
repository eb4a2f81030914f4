// Runs child processes: their output, their end and their CPU time.
#ifndef TLM_TESTS_SUPPORT_PROCESS_H_
#define TLM_TESTS_SUPPORT_PROCESS_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "tests/support/temp_dir.h"

namespace tlm {

// A child process, killed with SIGKILL when the object is destroyed or this process ends. Not
// thread-safe.
class Process {
 public:
  // The time that a test waits before it fails.
  static constexpr absl::Duration kPatience = absl::Seconds(60);

  // Runs `argv[0]`, looked up in PATH unless it has a slash. `environment` are further variables:
  // "NAME=VALUE". A program that cannot be run ends with status 127.
  explicit Process(const std::vector<std::string>& argv,
                   const std::vector<std::string>& environment = {});
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal);
  // Returns its exit status, or -N when signal N ended it; nullopt while it runs.
  std::optional<int> Ended();
  // Waits for its end: returns Ended(), or nullopt when `timeout` passed.
  std::optional<int> Wait(absl::Duration timeout = kPatience);

  // Returns standard output and standard error so far, mixed.
  std::string output() const;
  // Waits until its output contains `text` `times` times; false when it ended or `timeout` passed
  // before.
  bool WaitForOutput(std::string_view text, int times = 1, absl::Duration timeout = kPatience);

  // Returns the CPU time of all threads so far; 0 once it has ended.
  double CpuSeconds() const;
  // Returns the CPU time of its threads of this name, to hundredths of a second.
  double ThreadCpuSeconds(const std::string& name) const;

 private:
  const TempDir dir_;
  pid_t pid_ = -1;
  std::optional<int> status_;
};

// Returns the CPU time of this process.
double OwnCpuSeconds();

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_PROCESS_H_
