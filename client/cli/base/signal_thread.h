// SIGINT and SIGTERM as calls of a function.
#ifndef TLM_CLIENT_CLI_BASE_SIGNAL_THREAD_H_
#define TLM_CLIENT_CLI_BASE_SIGNAL_THREAD_H_

#include <atomic>
#include <csignal>
#include <functional>
#include <thread>

namespace tlm::cli {

// While one of these lives, its thread takes the two signals and calls a function with each. Make
// it before any other thread: only threads that start later leave the signals to it. One at a time.
class SignalThread {
 public:
  // `on_signal` runs in the thread, one call at a time, and may do what any thread may.
  explicit SignalThread(std::function<void(int)> on_signal);
  // Returns when no call is running any more.
  ~SignalThread();
  SignalThread(const SignalThread&) = delete;
  SignalThread& operator=(const SignalThread&) = delete;

 private:
  void WaitForSignals();

  const std::function<void(int)> on_signal_;
  sigset_t signals_;
  sigset_t previous_mask_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_SIGNAL_THREAD_H_
