#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "client/cli/base/command.h"
#include "client/cli/base/command_line.h"
#include "client/cli/base/report.h"
#include "client/cli/base/text.h"
#include "model/base/program/flag_errors.h"

namespace tlm::cli {

std::span<const Command> Commands() {
  static const Command kCommands[] = {
      GenerateCommand(), ChatCommand(),       ScoreCommand(),    VerifyCommand(),
      ForwardCommand(),  InfoCommand(),       TokenizeCommand(), DetokenizeCommand(),
      HealthCommand(),   ServeCommand(),      AdminCommand(),    BenchCommand(),
      TopCommand(),      CompletionCommand(), VersionCommand(),  HelpCommand()};
  return kCommands;
}

const Command* FindCommand(std::string_view name) {
  const std::span<const Command> commands = Commands();
  const auto found = std::find_if(commands.begin(), commands.end(),
                                  [name](const Command& command) { return command.name == name; });
  return found == commands.end() ? nullptr : &*found;
}

std::string NoCommand(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Command& command : Commands()) names.push_back(command.name);
  const std::string nearest = DidYouMean(name, names);
  return fmt::format("no command {}{}", Shortened(Quoted(name), 100),
                     nearest.empty() ? "; `tlm help` lists them" : nearest);
}

int RunCommandLine(const std::vector<std::string>& args, Console* console) {
  if (args.empty()) {
    Console to_err{console->in, console->err, console->err};
    FindCommand("help")->run({}, &to_err).status().IgnoreError();
    return kUsageError;
  }
  std::string name = args[0];
  if (name == "--help" || name == "-h") name = "help";
  if (name == "--version") name = "version";
  const Command* command = FindCommand(name);
  if (command == nullptr) {
    return ReportUsage("", NoCommand(name), console);
  }
  Arguments arguments(args.begin() + 1, args.end());
  bool wants_help = arguments == Arguments{"--help"} || arguments == Arguments{"-h"};
  if (!command->passes_on) {
    auto line = ParseCommandLine(*command, arguments);
    if (!line.ok()) return ReportUsage(name, StatusMessage(line.status()), console);
    wants_help = line->wants_help;
    arguments = std::move(line->arguments);
  }
  if (wants_help) return *FindCommand("help")->run({name}, console);
  if (command->arguments.empty() && !arguments.empty()) {
    return ReportUsage(name, "takes no arguments", console);
  }
  const absl::StatusOr<int> code = command->run(arguments, console);
  return code.ok() ? *code : ReportFailure(name, code.status(), console);
}

}  // namespace tlm::cli
