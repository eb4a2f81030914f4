#include "server/shutdown_signals.h"

#include <pthread.h>
#include <signal.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include "model/base/thread_name.h"
#include "server/observe/log.h"

namespace tlm {
namespace {

sigset_t TerminationSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

}  // namespace

ShutdownSignals::ShutdownSignals(ShutdownRequest& shutdown) : shutdown_(shutdown) {
  const sigset_t signals = TerminationSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  // A reader that went away is an error of its write, not a reason to die.
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

void ShutdownSignals::BeforeEarlyEnd(std::function<void()> clean_up) {
  MutexLock lock(&mutex_);
  clean_up_ = std::move(clean_up);
}

void ShutdownSignals::ExpectShutdown() {
  MutexLock lock(&mutex_);
  expected_ = true;
}

void ShutdownSignals::OnSecond(std::function<void()> hurry) {
  MutexLock lock(&mutex_);
  if (count_ >= 2) {
    hurry();
  } else {
    hurry_ = std::move(hurry);
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
    Count(signal);
  }
}

void ShutdownSignals::Count(int signal) {
  const std::string_view name = signal == SIGTERM ? "SIGTERM" : "SIGINT";
  if (!expected_) {
    spdlog::info("{} while starting: ending", name);
    if (clean_up_) clean_up_();
    FlushLog();
    std::_Exit(EXIT_SUCCESS);
  }
  ++count_;
  spdlog::info("{} received", name);
  // Who presses Ctrl-C has no balancer to wait for.
  shutdown_.Ask({.withdrawal_grace = signal == SIGTERM, .drain_limit = std::nullopt});
  if (count_ == 2 && hurry_) hurry_();
}

}  // namespace tlm
