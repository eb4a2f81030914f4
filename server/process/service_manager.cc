#include "server/process/service_manager.h"

#include <fmt/format.h>
#include <systemd/sd-daemon.h>

#include <cstdint>
#include <string>

namespace tlm {
namespace {

constexpr int kKeepEnvironment = 0;

// Errors are ignored: the server does not depend on a service manager.
void Notify(const std::string& state) { sd_notify(kKeepEnvironment, state.c_str()); }

}  // namespace

void NotifyProgress(std::string_view text, absl::Duration time) {
  Notify(fmt::format("STATUS={}\nEXTEND_TIMEOUT_USEC={}", text, absl::ToInt64Microseconds(time)));
}

void NotifyReady(std::string_view text) { Notify(fmt::format("READY=1\nSTATUS={}", text)); }

void NotifyStopping(std::string_view text) { Notify(fmt::format("STOPPING=1\nSTATUS={}", text)); }

void NotifyAlive() { Notify("WATCHDOG=1"); }

std::optional<absl::Duration> WatchdogTimeout() {
  uint64_t microseconds = 0;
  if (sd_watchdog_enabled(kKeepEnvironment, &microseconds) <= 0) return std::nullopt;
  return absl::Microseconds(microseconds);
}

}  // namespace tlm
