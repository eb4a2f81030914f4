#include "client/cli/base/shell_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <optional>
#include <utility>

#include "client/cli/base/report.h"
#include "client/cli/base/text.h"
#include "client/cpp/client_context.h"
#include "model/base/descriptor.h"

extern char** environ;

namespace tlm::cli {
namespace {

absl::Status NotStarted(const char* what, int error) {
  return absl::InternalError(
      fmt::format("the command cannot be started: {}: {}", what, std::strerror(error)));
}

// Makes a file in memory, at its beginning: unlike a pipe it never makes the writer wait.
absl::StatusOr<Descriptor> FileOf(const std::string& contents) {
  Descriptor file(memfd_create("input", MFD_CLOEXEC));
  if (file.get() < 0) return NotStarted("memfd_create", errno);
  for (size_t done = 0; done < contents.size();) {
    const ssize_t written = write(file.get(), contents.data() + done, contents.size() - done);
    if (written <= 0) return NotStarted("write", errno);
    done += static_cast<size_t>(written);
  }
  if (lseek(file.get(), 0, SEEK_SET) != 0) return NotStarted("lseek", errno);
  return file;
}

// A running process that leads its process group. The destructor kills the group, unless the
// process has ended.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) {}
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  ~Child() {
    if (pid_ <= 0) return;
    kill(-pid_, SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

  // Returns the status that waitpid reports, once the process has ended.
  std::optional<int> Ended() {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_;
};

absl::StatusOr<Child> Start(const std::string& command, const Descriptor& in,
                            const Descriptor& out) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out.get(), STDOUT_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  sigset_t no_signals;  // this program blocks the signals that end it
  sigemptyset(&no_signals);
  posix_spawnattr_setsigmask(&attributes, &no_signals);

  std::array<std::string, 4> args = {"sh", "-c", "--", command};
  std::array<char*, 5> argv = {};
  std::transform(args.begin(), args.end(), argv.begin(),
                 [](std::string& arg) { return arg.data(); });
  pid_t pid = -1;
  const int error = posix_spawn(&pid, "/bin/sh", &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return NotStarted("/bin/sh", error);
  return Child(pid);
}

// Waits for descriptors, until a deadline and a cancellation.
class Waiter {
 public:
  Waiter(absl::Duration timeout, client::CancelToken* cancel)
      : timeout_(timeout),
        deadline_(client::MonotonicNow() + timeout),
        cancelled_(eventfd(0, EFD_CLOEXEC)),
        registration_(cancel, [this] { eventfd_write(cancelled_.get(), 1); }) {}

  // Returns when `descriptor` (-1: none) can be read, or `pause` has passed.
  absl::Status Wait(int descriptor, absl::Duration pause) const {
    const absl::Duration left = deadline_ - client::MonotonicNow();
    const absl::Duration wait = std::clamp(left, absl::ZeroDuration(), pause);
    std::array<pollfd, 2> ready = {pollfd{cancelled_.get(), POLLIN, 0},
                                   pollfd{descriptor, POLLIN, 0}};
    const int64_t milliseconds = absl::ToInt64Milliseconds(absl::Ceil(wait, absl::Milliseconds(1)));
    poll(ready.data(), ready.size(), static_cast<int>(std::min<int64_t>(milliseconds, INT_MAX)));
    if (ready[0].revents != 0) return absl::CancelledError("cancelled");
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError(
          fmt::format("the command did not end within {}", absl::FormatDuration(timeout_)));
    }
    return absl::OkStatus();
  }

 private:
  const absl::Duration timeout_;
  const absl::Time deadline_;
  const Descriptor cancelled_;
  const client::CancelToken::Registration registration_;
};

// Reads everything from `pipe`, which does not block, up to its end.
absl::StatusOr<std::string> ReadAll(const Descriptor& pipe, const Waiter& waiter) {
  std::string text;
  std::array<char, 4096> buffer;
  while (true) {
    absl::Status status = waiter.Wait(pipe.get(), absl::InfiniteDuration());
    if (!status.ok()) return status;
    const ssize_t count = read(pipe.get(), buffer.data(), buffer.size());
    if (count == 0) return text;
    if (count < 0) continue;
    text.append(buffer.data(), static_cast<size_t>(count));
    if (text.size() > kMaxShellOutputBytes) {
      return absl::ResourceExhaustedError(
          fmt::format("the command's output is longer than {} bytes", kMaxShellOutputBytes));
    }
  }
}

// Returns the status of a command that has ended.
absl::Status StatusOf(int ended, const std::string& output) {
  constexpr size_t kMaxShownColumns = 1000;
  if (WIFSIGNALED(ended)) {
    return absl::UnknownError(fmt::format("ended by signal {}", WTERMSIG(ended)));
  }
  if (WEXITSTATUS(ended) == 0) return absl::OkStatus();
  return absl::UnknownError(fmt::format("exit status {}{}{}", WEXITSTATUS(ended),
                                        output.empty() ? "" : ": ",
                                        Shortened(output, kMaxShownColumns)));
}

}  // namespace

absl::StatusOr<std::string> RunShellCommand(const std::string& command, const std::string& input,
                                            absl::Duration timeout, client::CancelToken* cancel) {
  constexpr absl::Duration kPause = absl::Milliseconds(10);
  const auto in = FileOf(input);
  if (!in.ok()) return in.status();
  std::array<int, 2> ends;
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return NotStarted("pipe", errno);
  const Descriptor out(ends[0]);
  // Only the command's copy of the other end stays open.
  auto child = Start(command, *in, Descriptor(ends[1]));
  if (!child.ok()) return child.status();
  fcntl(out.get(), F_SETFL, O_NONBLOCK);

  const Waiter waiter(timeout, cancel);
  auto output = ReadAll(out, waiter);
  if (!output.ok()) return output;
  std::optional<int> ended;
  while (!(ended = child->Ended())) {
    if (absl::Status status = waiter.Wait(-1, kPause); !status.ok()) return status;
  }
  output->erase(output->find_last_not_of("\r\n") + 1);
  absl::Status status = CheckUtf8(*output);
  if (!status.ok()) {
    return absl::InvalidArgumentError("the command's output: " + StatusMessage(status));
  }
  status = StatusOf(*ended, *output);
  if (!status.ok()) return status;
  return output;
}

}  // namespace tlm::cli
