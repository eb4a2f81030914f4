#include "client/cli/base/signal_thread.h"

#include <pthread.h>

#include <utility>

namespace tlm::cli {

// The signals are blocked in every thread and taken by sigwait in one: neither gRPC nor a stream
// may be used in a signal handler.
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

}  // namespace tlm::cli
