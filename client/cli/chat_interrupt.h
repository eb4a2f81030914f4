// Handles Ctrl-C in a conversation.
#ifndef TLM_CLIENT_CLI_CHAT_INTERRUPT_H_
#define TLM_CLIENT_CLI_CHAT_INTERRUPT_H_

#include <functional>
#include <memory>
#include <mutex>

#include "client/cli/base/interrupt.h"
#include "client/cpp/cancel_token.h"

namespace tlm::cli {

// Interactively, the first Ctrl-C stops the answer or, while a line is read, reminds the user how
// to leave; a second one before the next line ends the program. If not interactive, and for SIGTERM
// always, the first one ends the program, after cancelling a running answer. See SignalThread.
class ChatInterrupt {
 public:
  // Another thread calls `remind`, between BeginRead and EndRead, and `prompt` after it.
  ChatInterrupt(bool interactive, std::function<void()> remind);

  // Surround the reading of a line. BeginRead calls `prompt` first, never concurrently with
  // `remind`; EndRead waits for a running `remind`.
  void BeginRead(std::function<void()> prompt);
  void EndRead();

  // Surround an answer. The token is for its RPC and valid until EndAnswer.
  client::CancelToken* BeginAnswer();
  void EndAnswer();

  // Returns 128 + the signal that ended the program; 0 if none did.
  int exit_code() const;

 private:
  void OnSignal(int signal);

  const bool interactive_;
  const std::function<void()> remind_;
  mutable std::mutex mutex_;
  std::unique_ptr<client::CancelToken> answer_;  // guarded by mutex_; null between answers
  std::function<void()> prompt_;                 // guarded by mutex_; null unless a line is read
  int presses_ = 0;                              // guarded by mutex_; counted since the last line
  int ended_by_ = 0;                             // guarded by mutex_; a signal
  SignalThread thread_;
};

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_CHAT_INTERRUPT_H_
