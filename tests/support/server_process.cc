#include "tests/support/server_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "absl/time/clock.h"

namespace tlm {
namespace {

std::string Environment(const char* name) {
  const char* const value = std::getenv(name);
  EXPECT_NE(value, nullptr) << name << " is not set: run the test through ctest";
  return value == nullptr ? "" : value;
}

int Count(std::string_view text, std::string_view what) {
  int count = 0;
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + what.size())) {
    ++count;
  }
  return count;
}

[[noreturn]] void Become(const std::string& binary, const std::vector<std::string>& arguments,
                         const std::vector<std::string>& environment, int output) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  std::vector<char*> argv = {const_cast<char*>(binary.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  for (const std::string& variable : environment) putenv(const_cast<char*>(variable.c_str()));
  execv(binary.c_str(), argv.data());
  _exit(127);
}

}  // namespace

std::string DemoModelDir() { return Environment("TLM_SOURCE_DIR") + "/model/demo"; }

std::string ServerBinary() { return Environment("TLM_BIN_DIR") + "/tlm-server"; }

ServerProcess::ServerProcess(const std::string& program, const std::vector<std::string>& arguments,
                             const std::vector<std::string>& environment) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    ADD_FAILURE() << "pipe2 failed";
    return;
  }
  pid_ = fork();
  if (pid_ == 0) Become(program, arguments, environment, ends[1]);
  close(ends[1]);
  reader_ = std::thread([this, descriptor = ends[0]] { ReadOutput(descriptor); });
}

ServerProcess::~ServerProcess() {
  if (!reaped_ && pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (reader_.joinable()) reader_.join();
}

std::unique_ptr<ServerProcess> ServerProcess::Serve(const std::vector<std::string>& extra) {
  std::vector<std::string> arguments = {"--model=" + DemoModelDir(), "--port=0",
                                        "--withdrawal_grace=0s"};
  arguments.insert(arguments.end(), extra.begin(), extra.end());
  auto server = std::make_unique<ServerProcess>(arguments);
  EXPECT_TRUE(server->WaitForOutput(" KV blocks)\n")) << server->output();
  return server;
}

bool ServerProcess::WaitForOutput(std::string_view text, int times) {
  const absl::Time end = absl::Now() + kPatience;
  MutexLock lock(&mutex_);
  while (Count(output_, text) < times) {
    const absl::Duration left = end - absl::Now();
    if (closed_ || left <= absl::ZeroDuration()) return false;
    changed_.WaitFor(&mutex_, absl::ToChronoNanoseconds(left));
  }
  return true;
}

int ServerProcess::port() {
  constexpr std::string_view kBefore = " on 127.0.0.1:";
  const std::string text = output();
  const size_t at = text.find(kBefore);
  return at == std::string::npos ? 0 : std::atoi(text.c_str() + at + kBefore.size());
}

std::string ServerProcess::address() { return "127.0.0.1:" + std::to_string(port()); }

void ServerProcess::Signal(int signal) { kill(pid_, signal); }

std::optional<int> ServerProcess::Wait() {
  {
    // Its output closes when it ends.
    const absl::Time end = absl::Now() + kPatience;
    MutexLock lock(&mutex_);
    while (!closed_) {
      const absl::Duration left = end - absl::Now();
      if (left <= absl::ZeroDuration()) return std::nullopt;
      changed_.WaitFor(&mutex_, absl::ToChronoNanoseconds(left));
    }
  }
  int status = 0;
  waitpid(pid_, &status, 0);
  reaped_ = true;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

std::string ServerProcess::output() {
  MutexLock lock(&mutex_);
  return output_;
}

void ServerProcess::ReadOutput(int descriptor) {
  char buffer[4096];
  for (;;) {
    const ssize_t bytes = read(descriptor, buffer, sizeof(buffer));
    if (bytes < 0 && errno == EINTR) continue;
    MutexLock lock(&mutex_);
    if (bytes > 0) output_.append(buffer, static_cast<size_t>(bytes));
    closed_ = bytes <= 0;
    changed_.NotifyAll();
    if (closed_) break;
  }
  close(descriptor);
}

ServerRun RunServerToTheEnd(const std::vector<std::string>& arguments) {
  ServerProcess server(arguments);
  ServerRun run;
  run.exit_status = server.Wait();
  run.output = server.output();
  return run;
}

}  // namespace tlm
