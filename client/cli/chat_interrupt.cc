#include "client/cli/chat_interrupt.h"

#include <unistd.h>

#include <utility>

namespace tlm::cli {
namespace {

// Ends the line after the terminal's "^C"; not through a stream, which another thread may be using.
void EndTerminalLine() { [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, "\n", 1); }

}  // namespace

ChatInterrupt::ChatInterrupt(bool interactive, std::function<void()> remind)
    : interactive_(interactive),
      remind_(std::move(remind)),
      thread_([this](int signal) { OnSignal(signal); }) {}

void ChatInterrupt::BeginRead(std::function<void()> prompt) {
  std::lock_guard<std::mutex> lock(mutex_);
  prompt_ = std::move(prompt);
  prompt_();
}

void ChatInterrupt::EndRead() {
  std::lock_guard<std::mutex> lock(mutex_);
  prompt_ = nullptr;
  presses_ = 0;
}

client::CancelToken* ChatInterrupt::BeginAnswer() {
  std::lock_guard<std::mutex> lock(mutex_);
  answer_ = std::make_unique<client::CancelToken>();
  return answer_.get();
}

void ChatInterrupt::EndAnswer() {
  std::lock_guard<std::mutex> lock(mutex_);
  answer_.reset();
}

int ChatInterrupt::exit_code() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return ended_by_ == 0 ? 0 : 128 + ended_by_;
}

void ChatInterrupt::OnSignal(int signal) {
  std::lock_guard<std::mutex> lock(mutex_);
  const bool ends = signal == SIGTERM || !interactive_;
  // A read cannot be cancelled, and a second signal does not wait for the answer.
  if (ended_by_ != 0 || (ends && answer_ == nullptr) || (!ends && presses_ > 0)) {
    if (interactive_) EndTerminalLine();
    _exit(128 + signal);
  }
  if (ends) {
    ended_by_ = signal;
  } else {
    ++presses_;
  }
  if (answer_ != nullptr) {
    answer_->Cancel();
  } else if (prompt_) {
    remind_();
    prompt_();
  }
}

}  // namespace tlm::cli
