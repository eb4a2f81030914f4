#include "server/process/shutdown_signals.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <utility>

#include "model/base/descriptor.h"
#include "model/base/thread_name.h"
#include "server/config/command_line.h"
#include "server/observe/log.h"

namespace tlm {
namespace {

sigset_t TerminationSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGHUP);
  return signals;
}

bool HasTerminal() {
  const Descriptor terminal(open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC));
  return terminal.get() >= 0;
}

// Condition variables take nanoseconds of the steady clock; this limit keeps long times within
// them.
constexpr absl::Duration kLongestWait = absl::Hours(24 * 365);

}  // namespace

ShutdownSignals::ShutdownSignals(ShutdownRequest& shutdown)
    : shutdown_(shutdown), has_terminal_(HasTerminal()) {
  const sigset_t signals = TerminationSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  // When a reader has gone away, the write must fail instead of ending the process.
  signal(SIGPIPE, SIG_IGN);
  thread_ = std::thread([this] { Run(); });
}

ShutdownSignals::~ShutdownSignals() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  pthread_kill(thread_.native_handle(), SIGTERM);
  thread_.join();
}

void ShutdownSignals::BeforeEarlyEnd(absl::FunctionRef<std::function<void()>()> prepare) {
  MutexLock lock(&mutex_);
  clean_up_ = prepare();
}

void ShutdownSignals::ExpectShutdown() {
  MutexLock lock(&mutex_);
  expected_ = true;
}

void ShutdownSignals::OnSecond(std::function<void()> on_second) {
  MutexLock lock(&mutex_);
  if (count_ >= 2) {
    on_second();
  } else {
    on_second_ = std::move(on_second);
  }
}

void ShutdownSignals::Run() {
  NameThisThread("signals");
  const sigset_t signals = TerminationSignals();
  for (;;) {
    int signal = 0;
    if (sigwait(&signals, &signal) != 0) continue;
    MutexLock lock(&mutex_);
    if (stopping_) return;
    if (signal == SIGHUP && !has_terminal_) {
      spdlog::info("SIGHUP: certificates and keys are read again whenever they change");
    } else if (signal == SIGTERM) {
      Count("SIGTERM", /*has_balancer=*/true);
    } else {
      // After Ctrl-C there is no balancer to wait for: the server is used interactively.
      Count(signal == SIGINT ? "SIGINT" : "SIGHUP", /*has_balancer=*/false);
    }
  }
}

void ShutdownSignals::Count(std::string_view name, bool has_balancer) {
  if (!expected_) {
    spdlog::info("{} while starting: ending", name);
    if (clean_up_) clean_up_();
    FlushLog();
    std::_Exit(EXIT_SUCCESS);
  }
  ++count_;
  spdlog::info("{} received", name);
  shutdown_.Ask({.withdrawal_grace = has_balancer, .drain_limit = std::nullopt});
  if (count_ == 2 && on_second_) on_second_();
}

ShutdownWatchdog::ShutdownWatchdog(std::string_view what, absl::Duration limit)
    : what_(what), limit_(limit), thread_([this] { Run(); }) {}

ShutdownWatchdog::~ShutdownWatchdog() {
  {
    MutexLock lock(&mutex_);
    averted_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void ShutdownWatchdog::Run() {
  const auto end =
      std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(std::min(limit_, kLongestWait));
  MutexLock lock(&mutex_);
  while (!averted_) {
    const auto left = end - std::chrono::steady_clock::now();
    if (left <= left.zero()) break;
    changed_.WaitFor(&mutex_, left);
  }
  if (averted_) return;
  spdlog::error("{} within {}: ended by force", what_, absl::FormatDuration(limit_));
  FlushLog();
  std::_Exit(kExitForced);
}

}  // namespace tlm
