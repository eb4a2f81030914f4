#include "client/cli/base/interrupt.h"

#include <pthread.h>
#include <unistd.h>

#include <utility>

namespace tlm::cli {

// The signals are blocked in every thread and received by sigwait in one: a signal handler may use
// neither gRPC nor streams.
SignalThread::SignalThread(std::function<void(int)> on_signal) : on_signal_(std::move(on_signal)) {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGINT);
  sigaddset(&signals_, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals_, &previous_mask_);
  thread_ = std::thread([this] { WaitForSignals(); });
}

SignalThread::~SignalThread() {
  stopping_ = true;
  pthread_kill(thread_.native_handle(), SIGINT);
  thread_.join();
  pthread_sigmask(SIG_SETMASK, &previous_mask_, nullptr);
}

void SignalThread::WaitForSignals() {
  while (true) {
    int signal = 0;
    if (sigwait(&signals_, &signal) != 0) continue;
    if (stopping_) return;
    on_signal_(signal);
  }
}

std::atomic<int> Interrupt::signal_{0};

Interrupt::Interrupt(Second second)
    : second_(second), thread_([this](int signal) { OnSignal(signal); }) {}

int Interrupt::exit_code() {
  const int signal = signal_;
  return signal == 0 ? 0 : 128 + signal;
}

void Interrupt::OnSignal(int signal) {
  if (signal_ != 0 && second_ == Second::kIsIgnored) return;
  if (signal_ != 0) _exit(128 + signal);
  signal_ = signal;
  token_.Cancel();
}

}  // namespace tlm::cli
