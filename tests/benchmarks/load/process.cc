#include "tests/benchmarks/load/process.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <system_error>

#include "absl/time/clock.h"
#include "model/base/errors.h"

namespace tlm::bench {
namespace {

constexpr absl::Duration kPollInterval = absl::Milliseconds(10);
constexpr absl::Duration kEndTimeout = absl::Seconds(20);

// Runs in the child after fork: async-signal-safe functions only.
[[noreturn]] void Become(char* const* argv, int log) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int null = open("/dev/null", O_RDONLY);
  dup2(null, STDIN_FILENO);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  execvp(argv[0], argv);
  _exit(127);
}

int ExitStatus(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

double ClockSeconds(clockid_t clock) {
  timespec time = {};
  if (clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// CPU time of one thread, from its /proc/<pid>/task/<tid>; 0 if it has another name or has ended.
double TaskSeconds(const std::filesystem::path& task, const std::string& name) {
  std::string comm;
  if (!std::getline(std::ifstream(task / "comm"), comm) || comm != name) return 0;
  // proc(5): the name in parentheses is followed by the fields from the third on; utime and stime
  // are the 14th and 15th.
  std::ifstream file(task / "stat");
  file.ignore(std::numeric_limits<std::streamsize>::max(), ')');
  std::string skipped;
  for (int field = 3; field < 14; ++field) file >> skipped;
  int64_t user = 0;
  int64_t system = 0;
  file >> user >> system;
  return static_cast<double>(user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

std::string ContentsOf(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

absl::StatusOr<std::unique_ptr<ScratchDir>> ScratchDir::Create() {
  std::string path = std::filesystem::temp_directory_path().string() + "/tlm-benchmark-XXXXXX";
  if (mkdtemp(path.data()) == nullptr) return Internal("{}: {}", path, std::strerror(errno));
  return std::unique_ptr<ScratchDir>(new ScratchDir(path));
}

ScratchDir::~ScratchDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

absl::StatusOr<std::unique_ptr<Process>> Process::Start(const std::vector<std::string>& argv,
                                                        const std::string& log) {
  std::vector<char*> arguments;
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const int output = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (output < 0) return Internal("{}: {}", log, std::strerror(errno));
  const pid_t pid = fork();
  if (pid == 0) Become(arguments.data(), output);
  close(output);
  if (pid < 0) return Internal("fork: {}", std::strerror(errno));
  return std::unique_ptr<Process>(new Process(pid));
}

Process::~Process() {
  if (Ended().has_value()) return;
  kill(pid_, SIGTERM);
  const absl::Time end = absl::Now() + kEndTimeout;
  while (absl::Now() < end) {
    if (Ended().has_value()) return;
    absl::SleepFor(kPollInterval);
  }
  kill(pid_, SIGKILL);
  Wait();
}

std::optional<int> Process::Ended() {
  int status = 0;
  if (!status_.has_value() && waitpid(pid_, &status, WNOHANG) == pid_) {
    status_ = ExitStatus(status);
  }
  return status_;
}

int Process::Wait() {
  int status = 0;
  while (!status_.has_value()) {
    if (waitpid(pid_, &status, 0) == pid_) status_ = ExitStatus(status);
  }
  return *status_;
}

double Process::CpuSeconds() const {
  clockid_t clock;
  if (status_.has_value() || clock_getcpuclockid(pid_, &clock) != 0) return 0;
  return ClockSeconds(clock);
}

double Process::ThreadCpuSeconds(const std::string& name) const {
  double seconds = 0;
  std::error_code ignored;
  const std::string tasks = "/proc/" + std::to_string(pid_) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks, ignored)) {
    seconds += TaskSeconds(task.path(), name);
  }
  return seconds;
}

double OwnCpuSeconds() { return ClockSeconds(CLOCK_PROCESS_CPUTIME_ID); }

absl::StatusOr<std::unique_ptr<ServerUnderTest>> ServerUnderTest::Start(
    std::vector<std::string> argv, absl::Duration timeout) {
  std::unique_ptr<ServerUnderTest> server(new ServerUnderTest());
  TLM_ASSIGN_OR_RETURN(server->directory_, ScratchDir::Create());
  const std::string port_file = server->directory_->File("port");
  const std::string log = server->directory_->File("log");
  argv.push_back("--port=0");
  argv.push_back("--port_file=" + port_file);
  TLM_ASSIGN_OR_RETURN(server->process_, Process::Start(argv, log));
  const absl::Time end = absl::Now() + timeout;
  while (absl::Now() < end) {
    std::string port;
    if (std::ifstream(port_file) >> port) {
      server->target_ = "127.0.0.1:" + port;
      return server;
    }
    if (const std::optional<int> status = server->process_->Ended()) {
      return FailedPrecondition("{} ended with status {}:\n{}", argv[0], *status, ContentsOf(log));
    }
    absl::SleepFor(kPollInterval);
  }
  return DeadlineExceeded("{} named no port within {}:\n{}", argv[0], absl::FormatDuration(timeout),
                          ContentsOf(log));
}

}  // namespace tlm::bench
