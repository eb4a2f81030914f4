#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "client/cli/base/command.h"
#include "client/cli/base/connection_flags.h"
#include "client/cli/base/report.h"
#include "client/cli/base/session.h"
#include "client/cli/base/text.h"
#include "client/cli/chat_interrupt.h"
#include "client/cli/chat_loop.h"
#include "client/cli/chat_request.h"

ABSL_FLAG(std::string, system, "", "what the model is told before the conversation");
ABSL_FLAG(bool, once, false, "end after the first answer");
ABSL_DECLARE_FLAG(bool, timing);

namespace tlm::cli {
namespace {

// The message on the command line; empty when lines are to be read.
absl::StatusOr<std::string> MessageFrom(const Arguments& arguments, std::istream* in) {
  if (arguments.size() > 1) {
    return absl::InvalidArgumentError("takes one MESSAGE at the most (in quotes if it has spaces)");
  }
  if (arguments.empty()) return std::string();
  auto text = ReadText(arguments[0], in);
  if (!text.ok()) return text.status();
  // The end of the last line that standard input holds is not part of what is said.
  text->erase(text->find_last_not_of("\r\n") + 1);
  if (text->empty()) return absl::InvalidArgumentError("the message is empty");
  return text;
}

absl::StatusOr<ChatOptions> OptionsFromFlags(bool has_message, const Console& console) {
  auto request = ChatRequestFromFlags();
  if (!request.ok()) return request.status();
  ChatOptions options;
  options.request = *std::move(request);
  options.system = absl::GetFlag(FLAGS_system);
  if (absl::Status status = CheckUtf8(options.system); !status.ok()) return status;
  options.timeout = TimeoutFromFlags();
  options.once = has_message || absl::GetFlag(FLAGS_once);
  options.has_person = console.in_is_terminal && !options.once;
  options.prompts = console.in_is_terminal && console.err_is_terminal && !has_message;
  options.timing = absl::GetFlag(FLAGS_timing);
  return options;
}

}  // namespace

int RunChat(const Arguments& arguments, Console* console) {
  const auto message = MessageFrom(arguments, &console->in);
  if (!message.ok()) return ReportUsage("chat", StatusMessage(message.status()), console);
  const auto options = OptionsFromFlags(!message->empty(), *console);
  if (!options.ok()) return ReportUsage("chat", StatusMessage(options.status()), console);

  ChatInterrupt interrupt(options->has_person, [console] { PrintChatReminder(console); });
  const auto client = ConnectFromFlags(console);
  if (!client.ok()) return ReportError("chat", client.status(), console);
  ChatLoop loop(*options, client->get(), &interrupt, console);
  if (!message->empty()) return loop.RunOnce(*message);
  if (options->has_person) {
    if (absl::Status status = loop.Greet(); !status.ok()) {
      return interrupt.exit_code() != 0 ? interrupt.exit_code()
                                        : ReportError("chat", status, console);
    }
  }
  return loop.Run();
}

}  // namespace tlm::cli
