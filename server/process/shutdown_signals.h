// Turns SIGTERM, SIGINT and SIGHUP into events, without interruptions.
#ifndef TLM_SERVER_PROCESS_SHUTDOWN_SIGNALS_H_
#define TLM_SERVER_PROCESS_SHUTDOWN_SIGNALS_H_

#include <functional>
#include <string_view>
#include <thread>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "model/base/mutex.h"
#include "server/admission/shutdown_request.h"

namespace tlm {

// SIGHUP counts as SIGINT in a process with a terminal, because the terminal was closed. Without a
// terminal it asks for a reload, which the server does by itself, so it is only logged. Make one
// object per process, before any other thread. Thread-safe.
class ShutdownSignals {
 public:
  // Blocks the signals in this thread and in threads that it starts later, and starts the thread
  // that waits for them. Until ExpectShutdown() a signal ends the process at once with status 0:
  // while the model is loaded there is no work to finish. `shutdown` outlives this object.
  explicit ShutdownSignals(ShutdownRequest& shutdown);
  // Ends the thread; the signals stay blocked.
  ~ShutdownSignals();
  ShutdownSignals(const ShutdownSignals&) = delete;
  ShutdownSignals& operator=(const ShutdownSignals&) = delete;

  // Calls `prepare` now, and calls the function it returns on the signal thread before a signal
  // ends the starting process. No signal ends it in between.
  void BeforeEarlyEnd(absl::FunctionRef<std::function<void()>()> prepare);
  // From now on the first signal requests the shutdown instead of ending the process.
  void ExpectShutdown();
  // Calls `on_second` on the signal thread at the second signal, or now if that signal has come.
  // Must not block.
  void OnSecond(std::function<void()> on_second);

 private:
  void Run();
  void Count(std::string_view name, bool has_balancer) TLM_REQUIRES(mutex_);

  ShutdownRequest& shutdown_;
  const bool has_terminal_;
  Mutex mutex_;
  bool expected_ TLM_GUARDED_BY(mutex_) = false;
  bool stopping_ TLM_GUARDED_BY(mutex_) = false;
  int count_ TLM_GUARDED_BY(mutex_) = 0;
  std::function<void()> clean_up_ TLM_GUARDED_BY(mutex_);
  std::function<void()> on_second_ TLM_GUARDED_BY(mutex_);
  std::thread thread_;  // last: it uses the other members
};

// Ends the process with kExitForced, without destructors, unless this object is destroyed within
// `limit`: a hanging step on a device cannot be interrupted, nor can gRPC while it is busy with a
// connection.
class ShutdownWatchdog {
 public:
  // `what` is the reason in the log: "the engine has not stopped". It outlives this object.
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
  std::thread thread_;  // last: it uses the other members
};

}  // namespace tlm

#endif  // TLM_SERVER_PROCESS_SHUTDOWN_SIGNALS_H_
