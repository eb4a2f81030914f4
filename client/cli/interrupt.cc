#include "client/cli/interrupt.h"

#include <pthread.h>
#include <unistd.h>

namespace tlm::cli {

// The signals are blocked in every thread and taken by sigwait in one: gRPC may not be called from
// a signal handler.
Interrupt::Interrupt() {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGINT);
  sigaddset(&signals_, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals_, &previous_mask_);
  thread_ = std::thread([this] { WaitForSignals(); });
}

Interrupt::~Interrupt() {
  stopping_ = true;
  pthread_kill(thread_.native_handle(), SIGINT);
  thread_.join();
  pthread_sigmask(SIG_SETMASK, &previous_mask_, nullptr);
}

int Interrupt::exit_code() const {
  const int signal = signal_;
  return signal == 0 ? 0 : 128 + signal;
}

void Interrupt::WaitForSignals() {
  while (true) {
    int signal = 0;
    if (sigwait(&signals_, &signal) != 0) continue;
    if (stopping_) return;
    if (signal_ != 0) _exit(128 + signal);
    signal_ = signal;
    token_.Cancel();
  }
}

}  // namespace tlm::cli
