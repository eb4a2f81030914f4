#include "client/cli/chat_loop.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "client/cli/base/generate_output.h"
#include "client/cli/base/report.h"
#include "client/cli/base/shell_command.h"
#include "client/cli/base/table.h"
#include "client/cli/base/terminal.h"
#include "client/cli/base/text.h"
#include "client/cpp/client_context.h"
#include "client/cpp/tools.h"
#include "model/base/errors.h"

namespace tlm::cli {
namespace {

struct SlashCommand {
  std::string_view name;
  std::string_view argument;  // empty: takes no argument
  std::string_view summary;
};

constexpr SlashCommand kSlashCommands[] = {
    {"/reset", "", "begin a new conversation; the system message stays"},
    {"/system", "TEXT", "set the system message; without TEXT, none"},
    {"/history", "", "what was said so far"},
    {"/seed", "N", "the seed of every answer; without N, a new one each"},
    {"/help", "", "this list"},
    {"/quit", "", "leave, as Ctrl-D does"},
};

// INVALID_ARGUMENT for an unknown command, and for an argument of one that takes none.
absl::Status CheckSlashCommand(std::string_view name, const std::string& argument) {
  for (const SlashCommand& command : kSlashCommands) {
    if (command.name != name) continue;
    if (!command.argument.empty() || argument.empty()) return absl::OkStatus();
    return InvalidArgument("{} takes nothing after it", name);
  }
  return InvalidArgument("no command {}; /help lists them, and // begins a message with a slash",
                         Shortened(Quoted(name), 40));
}

void PrintHelp(std::ostream& out) {
  Table table({Align::kLeft, Align::kLeft});
  for (const SlashCommand& command : kSlashCommands) {
    table.AddRow(
        {fmt::format("{} {}", command.name, command.argument), std::string(command.summary)});
  }
  table.AddRow({"//...", "a message that begins with a slash"});
  table.AddRow({"Ctrl-C", "stop the answer, keeping what was said; a second one leaves"});
  table.Print(out);
  out.flush();
}

constexpr size_t kMaxLineBytes = size_t{1} << 20;
constexpr size_t kMaxShownColumns = 200;  // columns of a tool's result

bool IsBlank(const std::string& text) { return text.find_first_not_of(" \t") == std::string::npos; }

// True for failures that the next message would have, too.
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

// Call it after a result: otherwise the model could never do anything but call.
void DemandNoCall(v1::ChatInput* chat) {
  const v1::ChatInput::ToolChoice& choice = chat->tool_choice();
  if (choice.has_name() || choice.mode() == v1::ChatInput::ToolChoice::REQUIRED) {
    chat->clear_tool_choice();
  }
}

std::string HistoryOf(const v1::ChatInput::Message& message) {
  std::string text = message.role();
  if (message.role() == "tool") text += ' ' + message.name();
  text += ": " + message.content();
  for (const v1::ChatInput::ToolCall& call : message.tool_calls()) {
    text += fmt::format("{}{}({})", text.ends_with(' ') ? "" : "\n  ", call.name(),
                        call.arguments_json());
  }
  return text;
}

}  // namespace

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
  const v1::ChatFormatInfo& format = info->capabilities().chat_format();
  if (!format.reasoning_format().empty() || !format.tool_format().empty()) {
    options_.request.mutable_output()->set_regions(true);
  }
  if (!options_.interactive) return absl::OkStatus();
  const std::string name = Printable(info->identity().model_id());
  if (!info->capabilities().chat()) {
    return FailedPrecondition("model {} has no chat template; `tlm generate` continues a prompt",
                              name);
  }
  console_->err << fmt::format("{} listens. /help lists the commands, Ctrl-D leaves.", name)
                << std::endl;
  return absl::OkStatus();
}

int ChatLoop::Run() {
  while (true) {
    const auto line = NextLine();
    if (!line.ok()) {
      Refuse(line.status());
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
  const std::optional<int> code = TakeMessage(message);
  return code ? *code : Run();
}

absl::StatusOr<std::optional<std::string>> ChatLoop::NextLine() {
  interrupt_->BeginRead([this] {
    if (!options_.prompts) return;
    if (!calls_.empty()) console_->err << "result of " << Printable(calls_.front().name);
    console_->err << "> " << std::flush;
  });
  auto line = ReadLine(&console_->in, kMaxLineBytes);
  interrupt_->EndRead();
  return line;
}

void ChatLoop::Refuse(const absl::Status& status) {
  ReportUsage("chat", StatusMessage(status), console_);
  failed_ = true;
}

std::optional<int> ChatLoop::TakeLine(const std::string& line) {
  if (IsBlank(line)) return std::nullopt;
  if (!line.starts_with('/') || line.starts_with("//")) {
    const std::string text = line.starts_with('/') ? line.substr(1) : line;
    return calls_.empty() ? TakeMessage(text) : TakeResult(text);
  }
  const std::string name = line.substr(0, line.find_first_of(" \t"));
  const std::string argument(absl::StripAsciiWhitespace(line.substr(name.size())));
  absl::Status status = CheckSlashCommand(name, argument);
  if (status.ok() && name == "/quit") return ExitCode();
  if (status.ok()) status = RunSlashCommand(name, argument);
  if (!status.ok()) Refuse(status);
  return std::nullopt;
}

absl::Status ChatLoop::RunSlashCommand(std::string_view name, const std::string& argument) {
  if (name == "/reset") {
    conversation_.Reset();
    calls_.clear();
    Confirm("a new conversation begins");
  } else if (name == "/system") {
    conversation_.set_system(argument);
    Confirm(argument.empty() ? "there is no system message" : "the system message is set");
  } else if (name == "/history") {
    PrintHistory();
  } else if (name == "/help") {
    PrintHelp(console_->out);
  } else if (argument.empty()) {  // /seed
    options_.request.mutable_sampling()->clear_seed();
    Confirm("every answer has a new seed");
  } else {
    uint64_t seed = 0;
    if (!absl::SimpleAtoi(argument, &seed)) {
      return InvalidArgument("/seed takes a number from 0 to {}, not {}", UINT64_MAX,
                             Quoted(argument));
    }
    options_.request.mutable_sampling()->set_seed(seed);
    Confirm(fmt::format("every answer has the seed {}", seed));
  }
  return absl::OkStatus();
}

void ChatLoop::Confirm(const std::string& what) {
  if (options_.prompts) console_->err << Styled(what, Style::kDim) << std::endl;
}

std::optional<int> ChatLoop::TakeMessage(const std::string& message) {
  turn_ = conversation_.messages().size();
  rounds_ = 0;
  conversation_.AddUser(message);
  return GoOn();
}

std::optional<int> ChatLoop::TakeResult(const std::string& result) {
  rounds_ = 0;
  AddResult(result);
  return GoOn();
}

// Generates answers until one has no call, or the user must type a result.
std::optional<int> ChatLoop::GoOn() {
  absl::StatusOr<bool> goes_on = RunCommands();
  while (goes_on.ok() && *goes_on && calls_.empty()) {
    goes_on = Answer();
    if (goes_on.ok() && *goes_on) goes_on = RunCommands();
  }
  if (const int code = interrupt_->exit_code(); code != 0) {
    console_->err << "tlm: chat: interrupted" << std::endl;
    return code;
  }
  if (!goes_on.ok()) return AfterFailure(goes_on.status());
  if (options_.once && calls_.empty()) return ExitCode();
  return std::nullopt;
}

std::optional<int> ChatLoop::AfterFailure(const absl::Status& status) {
  ReportError("chat", status, console_);
  TakeBack();
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

absl::StatusOr<bool> ChatLoop::Answer() {
  client::CancelToken* const cancel = interrupt_->BeginAnswer();
  client::Output answer;
  const absl::Status status = ReadAnswer(cancel, &answer);
  const bool stopped = cancel->cancelled() && absl::IsCancelled(status);
  interrupt_->EndAnswer();
  if (stopped && interrupt_->exit_code() == 0) {
    KeepStoppedAnswer(answer);
    return false;
  }
  if (!status.ok()) return status;
  conversation_.AddAnswer(answer);
  for (client::ToolCall& call : answer.tool_calls) {
    if (call.complete) calls_.push_back(std::move(call));
  }
  return !calls_.empty();
}

absl::Status ChatLoop::ReadAnswer(client::CancelToken* cancel, client::Output* answer) {
  v1::GenerateRequest request = options_.request;
  request.mutable_chat()->MergeFrom(conversation_.ToInput());
  if (request.chat().messages(request.chat().messages_size() - 1).role() == "tool") {
    DemandNoCall(request.mutable_chat());
  }
  client::CallOptions call_options;
  call_options.timeout = options_.timeout;
  call_options.cancel = cancel;
  GenerateOutputOptions output_options;
  output_options.stats = options_.timing;
  output_options.regions = request.output().regions();
  GenerateOutput output(output_options, client::MonotonicNow(), console_);
  const auto stream = client_->StartGenerate(request, call_options);
  const absl::Status status = output.PrintStream(stream.get());
  if (status.ok()) ReportResumes("chat", *client_, *stream, console_);
  if (output.result().outputs.empty()) return status;
  *answer = output.result().outputs[0];
  ReportEnd(*answer);
  return status;
}

// Reports how an answer ended, if that is unusual.
void ChatLoop::ReportEnd(const client::Output& answer) {
  const v1::FinishReason reason = answer.finished.reason();
  if (reason == v1::FINISH_REASON_UNSPECIFIED) return;
  if (reason == v1::FINISH_REASON_CONTEXT_LENGTH) {
    console_->err << "tlm: chat: the context is full; /reset begins a new conversation"
                  << std::endl;
  }
  for (const client::ToolCall& call : answer.tool_calls) {
    if (call.complete) continue;
    console_->err << fmt::format(
                         "tlm: chat: the answer ended within a call of {} ({}), which is "
                         "left out",
                         Printable(call.name), ReasonName(reason))
                  << std::endl;
  }
}

void ChatLoop::KeepStoppedAnswer(const client::Output& answer) {
  if (!answer.content.empty()) {
    client::Output said = answer;
    said.tool_calls.clear();
    conversation_.AddAnswer(said);
    return;
  }
  TakeBack();
  console_->err << "\ntlm: chat: stopped before the answer began; the message was taken back"
                << std::endl;
}

absl::StatusOr<bool> ChatLoop::RunCommands() {
  while (!calls_.empty() && options_.commands.contains(calls_.front().name)) {
    if (conversation_.messages().back().role() == "assistant" &&
        ++rounds_ > options_.max_tool_rounds) {
      return ResourceExhausted(
          "the model still calls tools after {} rounds; --max_tool_rounds sets the "
          "limit",
          options_.max_tool_rounds);
    }
    auto result = RunCommand(calls_.front());
    if (absl::IsCancelled(result.status()) && interrupt_->exit_code() == 0) {
      TakeBack();
      console_->err << "\ntlm: chat: stopped; the message was taken back" << std::endl;
      return false;
    }
    if (absl::IsCancelled(result.status())) return result.status();
    AddResult(result.ok() ? *std::move(result) : client::ToolErrorText(result.status()));
  }
  return true;
}

absl::StatusOr<std::string> ChatLoop::RunCommand(const client::ToolCall& call) {
  client::CancelToken* const cancel = interrupt_->BeginAnswer();
  auto result = RunShellCommand(options_.commands.at(call.name), call.arguments_json,
                                options_.tool_timeout, cancel);
  interrupt_->EndAnswer();
  if (absl::IsCancelled(result.status())) return result;
  const std::string text = result.ok() ? *result : client::ToolErrorText(result.status());
  console_->err << "  = " << Shortened(Quoted(text), kMaxShownColumns) << std::endl;
  return result;
}

void ChatLoop::AddResult(std::string result) {
  conversation_.AddToolResult(calls_.front(), std::move(result));
  calls_.pop_front();
}

void ChatLoop::TakeBack() {
  conversation_.Truncate(turn_);
  calls_.clear();
}

void ChatLoop::PrintHistory() {
  const v1::ChatInput history = conversation_.ToInput();
  for (const v1::ChatInput::Message& message : history.messages()) {
    const std::string text = HistoryOf(message);
    console_->out << (console_->out_is_terminal ? Printable(text) : text) << '\n';
  }
  console_->out.flush();
}

}  // namespace tlm::cli
