#include "server/process/shutdown_watchdog.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "server/config/command_line.h"
#include "server/observe/log.h"

namespace tlm {
namespace {

// Condition variables take the steady clock's nanoseconds: keep far-away times within them.
constexpr absl::Duration kLongestWait = absl::Hours(24 * 365);

}  // namespace

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
