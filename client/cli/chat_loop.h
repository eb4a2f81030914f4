// A conversation at a terminal or through pipes: lines in, answers out.
#ifndef TLM_CLIENT_CLI_CHAT_LOOP_H_
#define TLM_CLIENT_CLI_CHAT_LOOP_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cli/base/console.h"
#include "client/cli/chat_command.h"
#include "client/cli/chat_interrupt.h"
#include "client/cpp/client.h"
#include "client/cpp/conversation.h"

namespace tlm::cli {

struct ChatOptions {
  v1::GenerateRequest request;  // of every turn, but for the messages
  std::string system;
  absl::Duration timeout = absl::InfiniteDuration();  // of one answer
  bool has_person = false;  // what fails is reported and the conversation goes on
  bool prompts = false;     // "> " before each line
  bool once = false;        // ends after the first answer
  bool timing = false;      // a line of counts and speed after each answer
};

// Answers go to Console::out, prompts and errors to Console::err. A message whose answer failed, or
// was stopped before it began, is taken back, so that the conversation stays as it was.
class ChatLoop {
 public:
  // `client`, `interrupt` and `console` outlive this.
  ChatLoop(ChatOptions options, client::Client* client, ChatInterrupt* interrupt, Console* console);

  // Says what model listens. FAILED_PRECONDITION when it has no chat template; else as
  // Client::ModelInfo.
  absl::Status Greet();

  // Takes lines until they end, or something ends the program; returns the exit code.
  int Run();

  // Answers one message; returns the exit code.
  int RunOnce(const std::string& message);

 private:
  absl::StatusOr<std::optional<std::string>> NextLine();
  // An exit code when the program is to end.
  std::optional<int> TakeLine(const std::string& line);
  std::optional<int> TakeMessage(const std::string& message);
  std::optional<int> AfterFailure(const absl::Status& status);
  // Adds message and answer to the conversation. CANCELLED when a signal ended the program, OK when
  // it only stopped the answer.
  absl::Status Answer(const std::string& message);
  absl::Status ReadAnswer(client::CancelToken* cancel, std::string* text);
  void KeepStoppedAnswer(const std::string& text);
  void PrintHistory();
  int ExitCode() const { return failed_ && !options_.has_person ? kFailure : kSuccess; }

  ChatOptions options_;
  client::Client* const client_;
  ChatInterrupt* const interrupt_;
  Console* const console_;
  client::Conversation conversation_;
  bool failed_ = false;
};

// Reminds a person who pressed Ctrl-C at a prompt of how to leave.
void PrintChatReminder(Console* console);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_CHAT_LOOP_H_
