#include "tests/support/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <system_error>

#include "absl/time/clock.h"
#include "model/base/errors.h"

namespace tlm {
namespace {

constexpr absl::Duration kPollInterval = absl::Milliseconds(5);
constexpr char kLog[] = "log";

std::vector<char*> PointersTo(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  return pointers;
}

// Runs in the child after fork: async-signal-safe functions only.
[[noreturn]] void Become(char* const* argv, char* const* environment, int log) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int null = open("/dev/null", O_RDONLY);
  dup2(null, STDIN_FILENO);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  execvpe(argv[0], argv, environment);
  _exit(127);
}

int CountOf(std::string_view what, std::string_view text) {
  int count = 0;
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + what.size())) {
    ++count;
  }
  return count;
}

double ClockSeconds(clockid_t clock) {
  timespec time = {};
  if (clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Returns the CPU time of one thread, from its /proc/<pid>/task/<tid>; 0 if it has another name or
// has ended.
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

}  // namespace

Process::Process(const std::vector<std::string>& argv,
                 const std::vector<std::string>& environment) {
  std::vector<char*> arguments = PointersTo(argv);
  arguments.push_back(nullptr);
  // If two variables have the same name, the first one counts.
  std::vector<char*> variables = PointersTo(environment);
  for (char** variable = environ; *variable != nullptr; ++variable) variables.push_back(*variable);
  variables.push_back(nullptr);
  const int log = open(dir_.File(kLog).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  TLM_CHECK(log >= 0);
  pid_ = fork();
  if (pid_ == 0) Become(arguments.data(), variables.data(), log);
  close(log);
  TLM_CHECK(pid_ > 0);
}

Process::~Process() {
  if (Ended().has_value()) return;
  Signal(SIGKILL);
  Wait(absl::InfiniteDuration());
}

void Process::Signal(int signal) { kill(pid_, signal); }

std::optional<int> Process::Ended() {
  int status = 0;
  if (!status_.has_value() && waitpid(pid_, &status, WNOHANG) == pid_) {
    status_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  return status_;
}

std::optional<int> Process::Wait(absl::Duration timeout) {
  const absl::Time end = absl::Now() + timeout;
  while (!Ended().has_value() && absl::Now() < end) absl::SleepFor(kPollInterval);
  return Ended();
}

std::string Process::output() const {
  std::ifstream file(dir_.File(kLog), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

bool Process::WaitForOutput(std::string_view text, int times, absl::Duration timeout) {
  const absl::Time end = absl::Now() + timeout;
  for (;;) {
    const bool last = Ended().has_value() || absl::Now() >= end;
    if (CountOf(text, output()) >= times) return true;
    if (last) return false;
    absl::SleepFor(kPollInterval);
  }
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

}  // namespace tlm
