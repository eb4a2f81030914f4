#include "client/cli/base/shell_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "client/cli/base/text.h"
#include "client/cpp/client_context.h"
#include "model/base/descriptor.h"
#include "model/base/errors.h"

extern char** environ;

namespace tlm::cli {
namespace {

absl::Status NotStarted(const char* what, int error) {
  return Internal("the command cannot be started: {}: {}", what, std::strerror(error));
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

// Appends what can be read from `pipe`, which does not block. Returns whether it has ended.
absl::StatusOr<bool> ReadWhatIsThere(const Descriptor& pipe, std::string* text) {
  std::array<char, 4096> buffer;
  ssize_t count = 0;
  while ((count = read(pipe.get(), buffer.data(), buffer.size())) > 0) {
    text->append(buffer.data(), static_cast<size_t>(count));
    if (text->size() > kMaxShellOutputBytes) {
      return ResourceExhausted("the command's output is longer than {} bytes",
                               kMaxShellOutputBytes);
    }
  }
  return count == 0;
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
  constexpr absl::Duration kPause = absl::Milliseconds(5);
  const absl::Time deadline = client::MonotonicNow() + timeout;
  client::CancelToken cancelled(cancel);
  TLM_ASSIGN_OR_RETURN(const Descriptor in, FileOf(input));
  std::array<int, 2> ends;
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return NotStarted("pipe", errno);
  const Descriptor out(ends[0]);
  // Only the command's copy of the other end stays open.
  TLM_ASSIGN_OR_RETURN(Child child, Start(command, in, Descriptor(ends[1])));
  fcntl(out.get(), F_SETFL, O_NONBLOCK);

  std::string output;
  bool closed = false;
  std::optional<int> ended;
  while (true) {
    if (!closed) {
      TLM_ASSIGN_OR_RETURN(closed, ReadWhatIsThere(out, &output));
    }
    if (closed && (ended = child.Ended())) break;
    if (cancelled.WaitFor(std::min(kPause, timeout))) return Cancelled("cancelled");
    if (client::MonotonicNow() >= deadline) {
      return DeadlineExceeded("the command did not end within {}", absl::FormatDuration(timeout));
    }
  }
  output.erase(output.find_last_not_of("\r\n") + 1);
  if (absl::Status status = CheckUtf8(output); !status.ok()) {
    return WithContext(status, "the command's output");
  }
  TLM_RETURN_IF_ERROR(StatusOf(*ended, output));
  return output;
}

}  // namespace tlm::cli
