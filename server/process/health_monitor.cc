#include "server/process/health_monitor.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <utility>

#include "model/base/errors.h"
#include "model/base/thread_name.h"

namespace tlm {
absl::Status EngineHealth(const EngineStats& stats, absl::Time now, absl::Duration stall_timeout) {
  if (ReasonOf(stats.fault) == kDeviceLost) return WithContext(stats.fault, "the device is lost");
  if (!stats.fault.ok() && stats.consecutive_faults >= kPersistentFaults) {
    return WithContext(stats.fault, fmt::format("{} steps failed in a row, the last with",
                                                stats.consecutive_faults));
  }
  const absl::Duration silent = now - stats.last_progress;
  if (stats.busy && silent > stall_timeout) {
    return Unavailable("no step finished for {}, the limit is {}", absl::FormatDuration(silent),
                       absl::FormatDuration(stall_timeout));
  }
  return absl::OkStatus();
}

HealthMonitor::HealthMonitor(Engine& engine, Clock& clock, absl::Duration stall_timeout,
                             absl::Duration interval, HealthReports reports)
    : engine_(engine),
      clock_(clock),
      stall_timeout_(stall_timeout),
      interval_(interval),
      reports_(std::move(reports)) {
  reports_.changed(true);
  thread_ = std::thread([this] { Run(); });
}

HealthMonitor::~HealthMonitor() { Stop(); }

void HealthMonitor::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    stop_asked_.NotifyAll();
  }
  if (!thread_.joinable()) return;
  thread_.join();
  reports_.changed(false);
}

void HealthMonitor::Run() {
  NameThisThread("health");
  bool serving = true;
  for (;;) {
    {
      MutexLock lock(&mutex_);
      if (!stopping_) stop_asked_.WaitFor(&mutex_, absl::ToChronoNanoseconds(interval_));
      if (stopping_) return;
    }
    const absl::Status health = EngineHealth(engine_.Stats(), clock_.Now(), stall_timeout_);
    if (reports_.polled) reports_.polled();
    if (health.ok() && reports_.healthy) reports_.healthy();
    if (health.ok() == serving) continue;
    serving = health.ok();
    reports_.changed(serving);
    if (serving) {
      spdlog::info("health SERVING");
    } else {
      spdlog::error("health NOT_SERVING: {}", health.ToString());
    }
  }
}

}  // namespace tlm
