// Turns the engine's heartbeat into what the health service says.
#ifndef TLM_SERVER_HEALTH_MONITOR_H_
#define TLM_SERVER_HEALTH_MONITOR_H_

#include <cstdint>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "model/base/clock.h"
#include "model/base/mutex.h"
#include "server/batching/engine.h"
#include "server/rpc/rpc_server.h"

namespace tlm {

// One step that failed has ended its requests and says little about the next. Requests are retried
// elsewhere anyway; a replica that fails this many in a row would take and fail all it can get.
inline constexpr int64_t kPersistentFaults = 3;

// OK, or why the engine cannot be said to serve: its last kPersistentFaults steps failed, or it has
// had work for longer than `stall_timeout` without finishing a step. A long prefill is many steps.
absl::Status EngineHealth(const EngineStats& stats, absl::Time now, absl::Duration stall_timeout);

// Looks at the engine once a second and sets the health status when it changes. A fault ends with
// the next step that does not fail, a stall with the next step.
class HealthMonitor {
 public:
  // Says SERVING now and starts the thread. All outlive the monitor.
  HealthMonitor(Engine& engine, RpcServer& server, Clock& clock, absl::Duration stall_timeout);
  // Stop()s.
  ~HealthMonitor();

  // Says NOT_SERVING for good and joins the thread. Idempotent.
  void Stop();

 private:
  void Run();

  Engine& engine_;
  RpcServer& server_;
  Clock& clock_;
  const absl::Duration stall_timeout_;
  Mutex mutex_;
  CondVar stop_asked_;
  bool stopping_ TLM_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: uses the others
};

}  // namespace tlm

#endif  // TLM_SERVER_HEALTH_MONITOR_H_
