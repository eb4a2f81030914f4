// A conversation at a terminal or through pipes.
#ifndef TLM_CLIENT_CLI_CHAT_LOOP_H_
#define TLM_CLIENT_CLI_CHAT_LOOP_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cli/base/console.h"
#include "client/cli/chat_interrupt.h"
#include "client/cpp/client.h"

namespace tlm::cli {

struct ChatOptions {
  v1::GenerateRequest request;  // the request of every turn, without the messages
  std::string system;
  absl::Duration timeout = absl::InfiniteDuration();  // for one answer
  bool interactive = false;                           // report failures and continue
  bool prompts = false;                               // "> " before each line
  bool once = false;                                  // end after the first answer
  bool timing = false;                                // print counts and speed after each answer
  // Command lines of tools, by name: they get the arguments and print the result.
  std::map<std::string, std::string> commands;
  absl::Duration tool_timeout = absl::InfiniteDuration();  // for one command
  uint32_t max_tool_rounds =
      0;  // answers with calls to one message, while commands give the results
};

// Runs the conversation. A line that starts with a slash is a command, "//" starts a message with a
// slash. Answers go to Console::out; prompts, results of commands and errors go to
// Console::err. The results of calls without a command are the next lines. A message whose answer
// failed, or was stopped before it began, is removed from the conversation, with the calls that
// followed.
class ChatLoop {
 public:
  // `client`, `interrupt` and `console` must outlive the loop.
  ChatLoop(ChatOptions options, client::Client* client, ChatInterrupt* interrupt, Console* console);

  // Asks the server for the model's abilities. Interactively, it also prints the model's name, and
  // returns FAILED_PRECONDITION if it has no chat template. Returns the errors of
  // Client::ModelInfo.
  absl::Status Greet();

  // Reads lines until their end, or until a line ends the program; returns the exit code.
  int Run();

  // Answers one message; returns the exit code.
  int RunOnce(const std::string& message);

 private:
  absl::StatusOr<std::optional<std::string>> NextLine();
  // These return an exit code to end the program.
  std::optional<int> TakeLine(const std::string& line);
  std::optional<int> TakeMessage(const std::string& message);
  std::optional<int> TakeResult(const std::string& result);
  std::optional<int> GoOn();
  std::optional<int> AfterFailure(const absl::Status& status);
  absl::Status RunSlashCommand(std::string_view name, const std::string& argument);
  // Reports a line that is wrong.
  void Refuse(const absl::Status& status);
  // These return false when a signal stopped them, and CANCELLED when it ends the program. Answer
  // adds an answer to the conversation, and its calls to calls_; false if there are none.
  // RunCommands runs the first of calls_ that have commands.
  absl::StatusOr<bool> Answer();
  absl::StatusOr<bool> RunCommands();
  absl::Status ReadAnswer(client::CancelToken* cancel, client::Output* answer);
  void ReportEnd(const client::Output& answer);
  void KeepStoppedAnswer(const client::Output& answer);
  absl::StatusOr<std::string> RunCommand(const client::ToolCall& call);
  void AddResult(std::string result);
  // Removes the message and everything after it.
  void TakeBack();
  void PrintHistory();
  // Confirms, at a terminal, a command that has no answer.
  void Confirm(const std::string& what);
  int ExitCode() const { return failed_ && !options_.interactive ? kFailure : kSuccess; }

  ChatOptions options_;
  client::Client* const client_;
  ChatInterrupt* const interrupt_;
  Console* const console_;
  client::Conversation conversation_;
  size_t turn_ = 0;                     // index of the message that is being answered
  uint32_t rounds_ = 0;                 // rounds of calls since the last line
  std::deque<client::ToolCall> calls_;  // the calls without a result
  bool failed_ = false;
};

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_CHAT_LOOP_H_
