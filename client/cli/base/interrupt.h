// Ctrl-C as the cancellation of calls.
#ifndef TLM_CLIENT_CLI_BASE_INTERRUPT_H_
#define TLM_CLIENT_CLI_BASE_INTERRUPT_H_

#include <atomic>

#include "client/cli/base/signal_thread.h"
#include "client/cpp/cancel_token.h"

namespace tlm::cli {

// While one of these lives, the first SIGINT or SIGTERM cancels the token and the second ends the
// program. Otherwise as SignalThread.
class Interrupt {
 public:
  Interrupt();

  client::CancelToken* token() { return &token_; }

  // The exit code of a program that a signal ended, 128 + its number; 0 if none came.
  int exit_code() const;

 private:
  void OnSignal(int signal);

  client::CancelToken token_;
  std::atomic<int> signal_{0};
  SignalThread thread_;
};

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_INTERRUPT_H_
