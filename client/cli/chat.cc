#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "client/cli/base/command.h"
#include "client/cli/base/connection.h"
#include "client/cli/base/flag_types.h"
#include "client/cli/base/report.h"
#include "client/cli/base/request_flags.h"
#include "client/cli/base/text.h"
#include "client/cli/chat_interrupt.h"
#include "client/cli/chat_loop.h"
#include "client/cli/tool_file.h"
#include "model/base/errors.h"

using tlm::cli::TemplateArguments;
using tlm::cli::TimeSpan;

ABSL_FLAG(TemplateArguments, template_argument, {},
          "NAME=JSON, a variable of the chat template: enable_thinking=false; repeatable");
ABSL_FLAG(bool, timing, false, "print counts and speed after each answer");
ABSL_FLAG(std::string, system, "", "the system message of the conversation");
ABSL_FLAG(bool, once, false, "end after the first answer");
ABSL_FLAG(
    std::string, tools, "",
    "file with the tools that the model may call, as JSON in the form of OpenAI's API, or the "
    "JSON itself");
ABSL_FLAG(std::string, tool_choice, "",
          "auto (the model decides), none, required, or the name of the tool to call");
ABSL_FLAG(std::optional<bool>, parallel_tool_calls, std::nullopt,
          "whether an answer may hold several calls");
ABSL_FLAG(bool, run_tools, false,
          "run the command line \"exec\" of a tool in --tools for its calls, with the arguments on "
          "standard input; its output is the result");
ABSL_FLAG(TimeSpan, tool_timeout, TimeSpan{absl::Minutes(1)}, "time limit of such a command");
ABSL_FLAG(uint32_t, max_tool_rounds, 16, "answers in a row whose calls --run_tools may run");
ABSL_FLAG(std::string, reasoning, "", "on or off: whether the model reasons before it answers");
ABSL_FLAG(std::optional<uint32_t>, reasoning_budget, std::nullopt,
          "tokens after which the reasoning is ended");

namespace tlm::cli {
namespace {

absl::Status SetReasoning(v1::ChatInput* chat) {
  const std::string reasoning = absl::GetFlag(FLAGS_reasoning);
  const auto budget = absl::GetFlag(FLAGS_reasoning_budget);
  if (!reasoning.empty()) {
    TLM_ASSIGN_OR_RETURN(const bool on,
                         ValueOf<bool>("reasoning", reasoning, {{"on", true}, {"off", false}}));
    if (!on && budget) return InvalidArgument("--reasoning_budget is for --reasoning=on");
    chat->mutable_reasoning()->set_enabled(on);
  }
  if (budget) chat->mutable_reasoning()->set_budget_tokens(*budget);
  return absl::OkStatus();
}

absl::Status SetToolChoice(const std::string& choice, v1::ChatInput* chat) {
  using Choice = v1::ChatInput::ToolChoice;
  Choice& field = *chat->mutable_tool_choice();
  if (choice == "auto") {
    field.set_mode(Choice::AUTO);
  } else if (choice == "none") {
    field.set_mode(Choice::NONE);
  } else if (choice == "required") {
    field.set_mode(Choice::REQUIRED);
  } else {
    field.set_name(choice);
  }
  std::vector<std::string> names;
  for (const v1::ChatInput::Tool& tool : chat->tools()) {
    if (tool.name() == choice) return absl::OkStatus();
    names.push_back(tool.name());
  }
  if (!field.has_name()) return absl::OkStatus();
  constexpr size_t kMaxShownColumns = 300;
  return InvalidArgument("--tool_choice is {}, but the tools are {}", Quoted(choice),
                         Shortened(fmt::format("{}", fmt::join(names, ", ")), kMaxShownColumns));
}

// Sets the tools of the request, and the commands if they are to run.
absl::Status SetTools(const std::string& path, ChatOptions* options) {
  TLM_ASSIGN_OR_RETURN(const std::string json, ReadFlagFile("tools", path));
  auto file = ParseToolFile(json);
  if (!file.ok()) {
    constexpr size_t kMaxShownColumns = 300;
    return InvalidArgument("--tools: {}: {}", Printable(path),
                           Shortened(Printable(StatusMessage(file.status())), kMaxShownColumns));
  }
  v1::ChatInput& chat = *options->request.mutable_chat();
  chat.mutable_tools()->Add(file->tools.begin(), file->tools.end());
  if (const auto parallel = absl::GetFlag(FLAGS_parallel_tool_calls)) {
    chat.set_parallel_tool_calls(*parallel);
  }
  if (absl::GetFlag(FLAGS_run_tools)) {
    if (file->commands.empty()) {
      return InvalidArgument("--run_tools: no tool of {} has an \"exec\"", Printable(path));
    }
    options->commands = std::move(file->commands);
    options->tool_timeout = absl::GetFlag(FLAGS_tool_timeout).duration;
    options->max_tool_rounds = absl::GetFlag(FLAGS_max_tool_rounds);
  }
  const std::string choice = absl::GetFlag(FLAGS_tool_choice);
  return choice.empty() ? absl::OkStatus() : SetToolChoice(choice, &chat);
}

// Sets everything in the request except the messages. INVALID_ARGUMENT if the flags contradict each
// other, or name a file that cannot be read.
absl::Status SetRequest(ChatOptions* options) {
  v1::GenerateRequest& request = options->request;
  TLM_RETURN_IF_ERROR(SetGenerationFromFlags(&request));
  TLM_RETURN_IF_ERROR(SetConstraintFromFlags(&request));
  request.mutable_output()->set_timing(absl::GetFlag(FLAGS_timing));
  const TemplateArguments arguments = absl::GetFlag(FLAGS_template_argument);
  if (!arguments.values.fields().empty()) {
    *request.mutable_chat()->mutable_template_arguments() = arguments.values;
  }
  TLM_RETURN_IF_ERROR(SetReasoning(request.mutable_chat()));
  const std::string tools = absl::GetFlag(FLAGS_tools);
  if (!tools.empty()) return SetTools(tools, options);
  if (absl::GetFlag(FLAGS_tool_choice).empty() && !absl::GetFlag(FLAGS_parallel_tool_calls) &&
      !absl::GetFlag(FLAGS_run_tools)) {
    return absl::OkStatus();
  }
  return InvalidArgument("--tool_choice, --parallel_tool_calls and --run_tools need --tools");
}

// Returns the message of the command line; empty: read lines.
absl::StatusOr<std::string> MessageFrom(const Arguments& arguments, std::istream* in) {
  if (arguments.size() > 1) {
    return InvalidArgument("takes one MESSAGE at the most (in quotes if it has spaces)");
  }
  if (arguments.empty()) return std::string();
  TLM_ASSIGN_OR_RETURN(std::string text, ReadText(arguments[0], in));
  // The last line break of standard input is not part of the message.
  text.erase(text.find_last_not_of("\r\n") + 1);
  if (text.empty()) return InvalidArgument("the message is empty");
  return text;
}

absl::StatusOr<ChatOptions> OptionsFromFlags(bool has_message, const Console& console) {
  ChatOptions options;
  TLM_RETURN_IF_ERROR(SetRequest(&options));
  options.system = absl::GetFlag(FLAGS_system);
  TLM_RETURN_IF_ERROR(CheckUtf8(options.system));
  options.timeout = TimeoutFromFlags();
  options.once = has_message || absl::GetFlag(FLAGS_once);
  options.interactive = console.in_is_terminal && !options.once;
  options.prompts = console.in_is_terminal && console.err_is_terminal;
  options.timing = absl::GetFlag(FLAGS_timing);
  return options;
}

absl::StatusOr<int> RunChat(const Arguments& arguments, Console* console) {
  TLM_ASSIGN_OR_RETURN(const std::string message, AsUsage(MessageFrom(arguments, &console->in)));
  TLM_ASSIGN_OR_RETURN(const ChatOptions options,
                       AsUsage(OptionsFromFlags(!message.empty(), *console)));
  ChatInterrupt interrupt(options.interactive,
                          [console] { console->err << "\nCtrl-C again or Ctrl-D leaves.\n"; });
  TLM_ASSIGN_OR_RETURN(const auto client_options, ClientOptionsFromFlags(console));
  TLM_ASSIGN_OR_RETURN(const auto client,
                       client::Client::Connect(TargetsFromFlags(), client_options));
  ChatLoop loop(options, client.get(), &interrupt, console);
  const absl::Status status = loop.Greet();
  if (interrupt.exit_code() != 0) return interrupt.exit_code();
  TLM_RETURN_IF_ERROR(status);
  return message.empty() ? loop.Run() : loop.RunOnce(message);
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

Reasoning is dimmed at a terminal, and otherwise stands between the lines <reasoning> and
</reasoning>. With --tools the model's calls are shown as name(arguments), and the next
line is the result; --run_tools runs those tools that have an "exec":

  [{"name": "add", "description": "adds two numbers", "exec": "jq '.a + .b'",
    "parameters": {"type": "object", "required": ["a", "b"], "additionalProperties": false,
                   "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}}]

  tlm chat --system='You answer in one sentence.' --reasoning=off
  tlm chat 'What is 2 + 3?' --tools=tools.json --run_tools --reasoning_budget=200)",
      .flags = fmt::format("system template_argument tools tool_choice parallel_tool_calls "
                           "run_tools tool_timeout max_tool_rounds reasoning reasoning_budget once "
                           "timing model {} {}",
                           kSamplingFlags, kConstraintFlags),
      .connects = true,
      .run = RunChat};
}

}  // namespace tlm::cli
