#include "client/cli/base/interrupt.h"

#include <unistd.h>

namespace tlm::cli {

Interrupt::Interrupt() : thread_([this](int signal) { OnSignal(signal); }) {}

int Interrupt::exit_code() const {
  const int signal = signal_;
  return signal == 0 ? 0 : 128 + signal;
}

void Interrupt::OnSignal(int signal) {
  if (signal_ != 0) _exit(128 + signal);
  signal_ = signal;
  token_.Cancel();
}

}  // namespace tlm::cli
