// Ctrl-C in a conversation.
#ifndef TLM_CLIENT_CLI_CHAT_INTERRUPT_H_
#define TLM_CLIENT_CLI_CHAT_INTERRUPT_H_

#include <functional>
#include <memory>
#include <mutex>

#include "client/cli/base/signal_thread.h"
#include "client/cpp/cancel_token.h"

namespace tlm::cli {

// With a person at the terminal the first Ctrl-C stops the answer, or, where a line is read,
// reminds of how to leave; a second one with no line in between ends the program. Without a person,
// and for SIGTERM always, the first ends the program: after its answer was cancelled if there is
// one. Otherwise as SignalThread.
class ChatInterrupt {
 public:
  // `remind` is called in another thread, while the caller is between BeginRead and EndRead.
  ChatInterrupt(bool has_person, std::function<void()> remind);

  // Around the reading of a line. `prompt` is called before it, with no reminder coming in between;
  // EndRead waits for a reminder in progress.
  void BeginRead(const std::function<void()>& prompt);
  void EndRead();

  // Around an answer. The token is for its call, and valid until EndAnswer.
  client::CancelToken* BeginAnswer();
  void EndAnswer();

  // The exit code if a signal ended the program, 128 + its number; else 0.
  int exit_code() const;

 private:
  void OnSignal(int signal);

  const bool has_person_;
  const std::function<void()> remind_;
  mutable std::mutex mutex_;
  std::unique_ptr<client::CancelToken> answer_;  // guarded by mutex_; null while there is none
  bool reading_ = false;                         // guarded by mutex_
  int presses_ = 0;                              // guarded by mutex_; since the last line
  int ended_by_ = 0;                             // guarded by mutex_; a signal
  SignalThread thread_;
};

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_CHAT_INTERRUPT_H_
