// Turns SIGINT and SIGTERM into function calls and into the cancellation of RPCs.
#ifndef TLM_CLIENT_CLI_BASE_INTERRUPT_H_
#define TLM_CLIENT_CLI_BASE_INTERRUPT_H_

#include <atomic>
#include <csignal>
#include <functional>
#include <thread>

#include "client/cpp/cancel_token.h"

namespace tlm::cli {

// While it exists, its thread receives both signals and calls a function for each. Create it before
// any other thread: only later threads inherit the signal mask. At most one at a time.
class SignalThread {
 public:
  // `on_signal` runs in the thread, one call at a time; unlike a signal handler it may lock and
  // allocate.
  explicit SignalThread(std::function<void(int)> on_signal);
  // Waits for a running call.
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

// While it exists, the first SIGINT or SIGTERM cancels the token. SignalThread's rules apply.
class Interrupt {
 public:
  // The effect of the second signal. kIsIgnored is for programs that restore the terminal.
  enum class Second { kEndsTheProcess, kIsIgnored };

  explicit Interrupt(Second second = Second::kEndsTheProcess);

  client::CancelToken* token() { return &token_; }

  // Returns 128 + the number of the first signal that this process received while an Interrupt
  // existed; 0 if none came.
  static int exit_code();

 private:
  void OnSignal(int signal);

  const Second second_;
  client::CancelToken token_;
  static std::atomic<int> signal_;  // the first one
  SignalThread thread_;
};

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_INTERRUPT_H_
