#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "client/cli/base/command.h"
#include "client/cli/base/connection.h"
#include "client/cli/base/flag_types.h"
#include "client/cli/base/generate_output.h"
#include "client/cli/base/report.h"
#include "client/cli/base/request_flags.h"
#include "client/cli/base/session.h"
#include "client/cli/base/text.h"
#include "client/cli/chat_command.h"
#include "client/cli/chat_interrupt.h"
#include "client/cpp/client.h"
#include "client/cpp/client_context.h"
#include "client/cpp/conversation.h"

using tlm::cli::TemplateArguments;

ABSL_FLAG(TemplateArguments, template_argument, {},
          "NAME=JSON, a variable of the chat template: enable_thinking=false; repeatable");
ABSL_FLAG(bool, timing, false, "print counts and speed after each answer");
ABSL_FLAG(std::string, system, "", "the system message of the conversation");
ABSL_FLAG(bool, once, false, "end after the first answer");

namespace tlm::cli {
namespace {

constexpr char kPrompt[] = "> ";
constexpr size_t kMaxLineBytes = size_t{1} << 20;

bool IsBlank(const std::string& text) { return text.find_first_not_of(" \t") == std::string::npos; }

// Failures that the next message would get too.
bool IsLasting(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
      return true;
    default:
      return false;
  }
}

struct ChatOptions {
  v1::GenerateRequest request;  // of every turn, without the messages
  std::string system;
  absl::Duration timeout = absl::InfiniteDuration();  // of one answer
  bool interactive = false;                           // report failures and go on
  bool prompts = false;                               // "> " before each line
  bool once = false;                                  // end after the first answer
  bool timing = false;                                // print counts and speed after each answer
};

// A conversation at a terminal or through pipes. Answers go to Console::out, prompts and errors to
// Console::err. A message whose answer failed, or was stopped before it began, is removed from the
// conversation.
class ChatLoop {
 public:
  // `client`, `interrupt` and `console` outlive this.
  ChatLoop(ChatOptions options, client::Client* client, ChatInterrupt* interrupt, Console* console);

  // Prints the model's name. FAILED_PRECONDITION if it has no chat template; errors of
  // Client::ModelInfo.
  absl::Status Greet();

  // Reads lines until their end, or until one ends the program; returns the exit code.
  int Run();

  // Answers one message; returns the exit code.
  int RunOnce(const std::string& message);

 private:
  absl::StatusOr<std::optional<std::string>> NextLine();
  // These return an exit code to end the program.
  std::optional<int> TakeLine(const std::string& line);
  std::optional<int> TakeMessage(const std::string& message);
  std::optional<int> AfterFailure(const absl::Status& status);
  // Adds message and answer to the conversation. CANCELLED if a signal ends the program, OK if it
  // only stopped the answer.
  absl::Status Answer(const std::string& message);
  absl::Status ReadAnswer(client::CancelToken* cancel, std::string* text);
  void KeepStoppedAnswer(const std::string& text);
  void PrintHistory();
  int ExitCode() const { return failed_ && !options_.interactive ? kFailure : kSuccess; }

  ChatOptions options_;
  client::Client* const client_;
  ChatInterrupt* const interrupt_;
  Console* const console_;
  client::Conversation conversation_;
  bool failed_ = false;
};

ChatLoop::ChatLoop(ChatOptions options, client::Client* client, ChatInterrupt* interrupt,
                   Console* console)
    : options_(std::move(options)), client_(client), interrupt_(interrupt), console_(console) {
  conversation_.set_system(options_.system);
}

absl::Status ChatLoop::Greet() {
  client::CallOptions options;
  options.timeout = options_.timeout;
  options.cancel = interrupt_->BeginAnswer();
  v1::ModelInfoRequest request;
  request.set_model(options_.request.model());
  const auto info = client_->ModelInfo(request, options);
  interrupt_->EndAnswer();
  if (!info.ok()) return info.status();
  const std::string name = Printable(info->identity().model_id());
  if (!info->capabilities().chat()) {
    return absl::FailedPreconditionError(
        fmt::format("model {} has no chat template; `tlm generate` continues a prompt", name));
  }
  console_->err << fmt::format("{} listens. /help lists the commands, Ctrl-D leaves.", name)
                << std::endl;
  return absl::OkStatus();
}

int ChatLoop::Run() {
  while (true) {
    const auto line = NextLine();
    if (!line.ok()) {
      ReportUsage("chat", StatusMessage(line.status()), console_);
      failed_ = true;
      continue;
    }
    if (!line->has_value()) {
      if (options_.prompts) console_->err << std::endl;
      return ExitCode();
    }
    if (const std::optional<int> code = TakeLine(**line)) return *code;
  }
}

int ChatLoop::RunOnce(const std::string& message) {
  options_.once = true;
  return TakeMessage(message).value_or(kSuccess);
}

absl::StatusOr<std::optional<std::string>> ChatLoop::NextLine() {
  interrupt_->BeginRead([this] {
    if (options_.prompts) console_->err << kPrompt << std::flush;
  });
  auto line = ReadLine(&console_->in, kMaxLineBytes);
  interrupt_->EndRead();
  return line;
}

std::optional<int> ChatLoop::TakeLine(const std::string& line) {
  if (IsBlank(line)) return std::nullopt;
  const auto parsed = ParseChatLine(line);
  if (!parsed.ok()) {
    ReportUsage("chat", StatusMessage(parsed.status()), console_);
    failed_ = true;
    return std::nullopt;
  }
  switch (parsed->kind) {
    case ChatLine::Kind::kMessage:
      return TakeMessage(parsed->text);
    case ChatLine::Kind::kReset:
      conversation_.Reset();
      break;
    case ChatLine::Kind::kSystem:
      conversation_.set_system(parsed->text);
      break;
    case ChatLine::Kind::kHistory:
      PrintHistory();
      break;
    case ChatLine::Kind::kSeed:
      options_.request.mutable_sampling()->clear_seed();
      if (parsed->seed) options_.request.mutable_sampling()->set_seed(*parsed->seed);
      break;
    case ChatLine::Kind::kHelp:
      PrintChatHelp(console_->out);
      break;
    case ChatLine::Kind::kQuit:
      return ExitCode();
  }
  return std::nullopt;
}

std::optional<int> ChatLoop::TakeMessage(const std::string& message) {
  const absl::Status status = Answer(message);
  if (const int code = interrupt_->exit_code(); code != 0) {
    console_->err << "tlm: chat: interrupted" << std::endl;
    return code;
  }
  if (!status.ok()) return AfterFailure(status);
  if (options_.once) return ExitCode();
  return std::nullopt;
}

std::optional<int> ChatLoop::AfterFailure(const absl::Status& status) {
  ReportError("chat", status, console_);
  failed_ = true;
  if (options_.once || IsLasting(status)) return kFailure;
  const bool is_refusal = absl::IsInvalidArgument(status);
  // The next lines of a script may depend on the missing answer.
  if (!is_refusal && !options_.interactive) return kFailure;
  console_->err << "  the message was taken back";
  if (is_refusal && !conversation_.messages().empty()) {
    console_->err << "; if the conversation has outgrown the context, /reset begins a new one";
  }
  console_->err << std::endl;
  return std::nullopt;
}

absl::Status ChatLoop::Answer(const std::string& message) {
  conversation_.AddUser(message);
  client::CancelToken* const cancel = interrupt_->BeginAnswer();
  std::string text;
  const absl::Status status = ReadAnswer(cancel, &text);
  const bool stopped = cancel->cancelled() && absl::IsCancelled(status);
  interrupt_->EndAnswer();
  if (stopped && interrupt_->exit_code() == 0) {
    KeepStoppedAnswer(text);
    return absl::OkStatus();
  }
  if (status.ok()) {
    conversation_.AddAssistant(std::move(text));
  } else {
    conversation_.DropLast();
  }
  return status;
}

absl::Status ChatLoop::ReadAnswer(client::CancelToken* cancel, std::string* text) {
  v1::GenerateRequest request = options_.request;
  request.mutable_chat()->MergeFrom(conversation_.ToInput());
  client::CallOptions call_options;
  call_options.timeout = options_.timeout;
  call_options.cancel = cancel;
  GenerateOutputOptions output_options;
  output_options.stats = options_.timing;
  GenerateOutput output(output_options, client::MonotonicNow(), console_);
  const auto stream = client_->StartGenerate(request, call_options);
  v1::GenerateResponse event;
  absl::Status status;
  while (status.ok() && stream->Read(&event)) status = output.Add(event, client::MonotonicNow());
  if (status.ok()) status = stream->Finish();
  if (status.ok()) {
    status = output.Finish();
    ReportResumes("chat", *client_, *stream, console_);
  } else {
    output.Abandon();
  }
  if (output.result().outputs.empty()) return status;
  const client::Output& answer = output.result().outputs[0];
  *text = answer.text;
  if (answer.finished.reason() == v1::FINISH_REASON_CONTEXT_LENGTH) {
    console_->err << "tlm: chat: the context is full; /reset begins a new conversation"
                  << std::endl;
  }
  return status;
}

void ChatLoop::KeepStoppedAnswer(const std::string& text) {
  if (!text.empty()) {
    conversation_.AddAssistant(text);
    return;
  }
  conversation_.DropLast();
  console_->err << "\ntlm: chat: stopped before the answer began; the message was taken back"
                << std::endl;
}

void ChatLoop::PrintHistory() {
  const v1::ChatInput history = conversation_.ToInput();
  for (const v1::ChatInput::Message& message : history.messages()) {
    const std::string line = fmt::format("{}: {}", message.role(), message.content());
    console_->out << (console_->out_is_terminal ? Printable(line) : line) << '\n';
  }
  console_->out.flush();
}

// After Ctrl-C at a prompt.
void PrintChatReminder(Console* console) {
  console->err << "\nCtrl-C again or Ctrl-D leaves.\n" << kPrompt << std::flush;
}

// Everything but the messages. INVALID_ARGUMENT if the flags contradict each other, or name a file
// that cannot be read.
absl::StatusOr<v1::GenerateRequest> ChatRequestFromFlags() {
  v1::GenerateRequest request;
  if (absl::Status status = SetGenerationFromFlags(&request); !status.ok()) return status;
  if (absl::Status status = SetConstraintFromFlags(&request); !status.ok()) return status;
  request.mutable_output()->set_timing(absl::GetFlag(FLAGS_timing));
  const TemplateArguments arguments = absl::GetFlag(FLAGS_template_argument);
  if (!arguments.values.fields().empty()) {
    *request.mutable_chat()->mutable_template_arguments() = arguments.values;
  }
  return request;
}

// The message of the command line; empty = read lines.
absl::StatusOr<std::string> MessageFrom(const Arguments& arguments, std::istream* in) {
  if (arguments.size() > 1) {
    return absl::InvalidArgumentError("takes one MESSAGE at the most (in quotes if it has spaces)");
  }
  if (arguments.empty()) return std::string();
  auto text = ReadText(arguments[0], in);
  if (!text.ok()) return text.status();
  // The last line break of standard input is not part of the message.
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
  options.interactive = console.in_is_terminal && !options.once;
  options.prompts = console.in_is_terminal && console.err_is_terminal && !has_message;
  options.timing = absl::GetFlag(FLAGS_timing);
  return options;
}

constexpr std::string_view kChatFlags[] = {"system", "template_argument", "once", "timing",
                                           "model"};

int RunChat(const Arguments& arguments, Console* console) {
  const auto message = MessageFrom(arguments, &console->in);
  if (!message.ok()) return ReportUsage("chat", StatusMessage(message.status()), console);
  const auto options = OptionsFromFlags(!message->empty(), *console);
  if (!options.ok()) return ReportUsage("chat", StatusMessage(options.status()), console);

  ChatInterrupt interrupt(options->interactive, [console] { PrintChatReminder(console); });
  const auto client = ConnectFromFlags(console);
  if (!client.ok()) return ReportError("chat", client.status(), console);
  ChatLoop loop(*options, client->get(), &interrupt, console);
  if (!message->empty()) return loop.RunOnce(*message);
  if (options->interactive) {
    if (absl::Status status = loop.Greet(); !status.ok()) {
      return interrupt.exit_code() != 0 ? interrupt.exit_code()
                                        : ReportError("chat", status, console);
    }
  }
  return loop.Run();
}

}  // namespace

Command ChatCommand() {
  return {
      .name = "chat",
      .arguments = "[MESSAGE]",
      .summary = "hold a conversation; without MESSAGE, line by line from standard input",
      .details =
          R"(Each line is a message, and the model sees all that was said before; /help lists what else
a line can be. Ctrl-C stops the answer, keeping what was said; a second one, or Ctrl-D,
leaves. With MESSAGE (- for all of standard input) or --once there is one answer.

  tlm chat --system='You answer in one sentence.' --template_argument=enable_thinking=false)",
      .flags = JoinFlagNames({kChatFlags, SamplingFlagNames(), ConstraintFlagNames()}),
      .connects = true,
      .run = RunChat};
}

}  // namespace tlm::cli
