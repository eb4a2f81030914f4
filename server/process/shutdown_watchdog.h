// Ends a process whose shutdown hangs.
#ifndef TLM_SERVER_PROCESS_SHUTDOWN_WATCHDOG_H_
#define TLM_SERVER_PROCESS_SHUTDOWN_WATCHDOG_H_

#include <string_view>
#include <thread>

#include "absl/time/time.h"
#include "model/base/mutex.h"

namespace tlm {

// Ends the process with kExitForced, without destructors, unless this object is destroyed within
// `limit`: a step on a device that hangs cannot be interrupted, nor can gRPC while it is busy with
// a connection.
class ShutdownWatchdog {
 public:
  // `what` is the reason in the log: "the engine has not stopped". It outlives the object.
  ShutdownWatchdog(std::string_view what, absl::Duration limit);
  ~ShutdownWatchdog();
  ShutdownWatchdog(const ShutdownWatchdog&) = delete;
  ShutdownWatchdog& operator=(const ShutdownWatchdog&) = delete;

 private:
  void Run();

  const std::string_view what_;
  const absl::Duration limit_;
  Mutex mutex_;
  CondVar changed_;
  bool averted_ TLM_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: uses the others
};

}  // namespace tlm

#endif  // TLM_SERVER_PROCESS_SHUTDOWN_WATCHDOG_H_
