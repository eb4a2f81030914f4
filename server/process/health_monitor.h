// Derives the health status from the engine's progress.
#ifndef TLM_SERVER_PROCESS_HEALTH_MONITOR_H_
#define TLM_SERVER_PROCESS_HEALTH_MONITOR_H_

#include <cstdint>
#include <functional>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "model/base/clock.h"
#include "model/base/mutex.h"
#include "server/batching/engine.h"

namespace tlm {

// One failed step ends its requests and says little about the next step. A replica that fails this
// many steps in a row would attract retries, because it answers fastest, and make them fail too.
inline constexpr int64_t kPersistentFaults = 3;

// Returns OK, or why the engine is unhealthy: its last kPersistentFaults steps failed, the device
// is lost (errors.h), or it has had work for longer than `stall_timeout` without finishing a step.
// A long prefill is many steps.
absl::Status EngineHealth(const EngineStats& stats, absl::Time now, absl::Duration stall_timeout);

// Called on the monitor's thread, one at a time.
struct HealthReports {
  std::function<void(bool serving)> changed;
  std::function<void()> healthy;  // at every poll that finds the engine healthy; may be null
  std::function<void()> polled;   // at every poll; may be null
};

// Polls the engine and reports changes of its health. A fault ends with the next successful step, a
// stall with the next step.
class HealthMonitor {
 public:
  // Short enough for health checks, and for a watchdog with at least twice this timeout.
  static constexpr absl::Duration kInterval = absl::Seconds(1);

  // Reports on this thread that the server serves, then polls every `interval` on its own thread.
  // The arguments outlive the monitor.
  HealthMonitor(Engine& engine, Clock& clock, absl::Duration stall_timeout, absl::Duration interval,
                HealthReports reports);
  // Calls Stop().
  ~HealthMonitor();

  // Joins the thread and reports, for the last time, that the server does not serve. Idempotent.
  void Stop();

 private:
  void Run();

  Engine& engine_;
  Clock& clock_;
  const absl::Duration stall_timeout_;
  const absl::Duration interval_;
  const HealthReports reports_;
  Mutex mutex_;
  CondVar stop_asked_;
  bool stopping_ TLM_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the other members
};

}  // namespace tlm

#endif  // TLM_SERVER_PROCESS_HEALTH_MONITOR_H_
