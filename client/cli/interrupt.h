// Ctrl-C as the cancellation of calls.
#ifndef TLM_CLIENT_CLI_INTERRUPT_H_
#define TLM_CLIENT_CLI_INTERRUPT_H_

#include <atomic>
#include <csignal>
#include <thread>

#include "client/cpp/cancel_token.h"

namespace tlm::cli {

// While one of these lives, the first SIGINT or SIGTERM cancels the token and the second ends the
// program. Make it before any other thread: only threads that start later leave the signals to it.
// One at a time.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  client::CancelToken* token() { return &token_; }

  // The exit code of a program that a signal ended, 128 + its number; 0 if none came.
  int exit_code() const;

 private:
  void WaitForSignals();

  client::CancelToken token_;
  sigset_t signals_;
  sigset_t previous_mask_;
  std::atomic<int> signal_{0};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_INTERRUPT_H_
