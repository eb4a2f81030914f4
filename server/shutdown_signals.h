// SIGTERM and SIGINT as events instead of interruptions.
#ifndef TLM_SERVER_SHUTDOWN_SIGNALS_H_
#define TLM_SERVER_SHUTDOWN_SIGNALS_H_

#include <functional>
#include <thread>

#include "model/base/mutex.h"

namespace tlm {

// One object a process, made before any other thread. Thread-safe.
class ShutdownSignals {
 public:
  // Blocks both signals in this thread and in all it starts from now on, and starts the thread that
  // waits for them. Until ExpectShutdown() a signal ends the process at once with status 0: while
  // a model is being loaded there is nothing to finish.
  ShutdownSignals();
  // Ends the thread; the signals stay blocked.
  ~ShutdownSignals();
  ShutdownSignals(const ShutdownSignals&) = delete;
  ShutdownSignals& operator=(const ShutdownSignals&) = delete;

  // From now on the first signal ends WaitForFirst() instead of the process.
  void ExpectShutdown();
  void WaitForFirst();
  // Calls `hurry` on the signal thread at the second signal, or now if it has come. Must not block.
  void OnSecond(std::function<void()> hurry);

 private:
  void Run();
  void Count(int signal) TLM_REQUIRES(mutex_);

  Mutex mutex_;
  CondVar arrived_;
  bool expected_ TLM_GUARDED_BY(mutex_) = false;
  bool stopping_ TLM_GUARDED_BY(mutex_) = false;
  int count_ TLM_GUARDED_BY(mutex_) = 0;
  std::function<void()> hurry_ TLM_GUARDED_BY(mutex_);
  std::thread thread_;  // last: uses the others
};

}  // namespace tlm

#endif  // TLM_SERVER_SHUTDOWN_SIGNALS_H_
