// The table of the program's commands.
#ifndef TLM_CLIENT_CLI_BASE_COMMAND_H_
#define TLM_CLIENT_CLI_BASE_COMMAND_H_

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/base/console.h"

namespace tlm::cli {

// The command line without flags.
using Arguments = std::vector<std::string>;

struct Command {
  std::string_view name;
  std::string_view arguments = {};  // "PROMPT"
  std::string_view summary;         // one line for the list of commands
  std::string_view details = {};    // a paragraph for its own help; may be empty
  std::string flags = {};           // names, with spaces between them
  bool connects = false;            // takes the connection flags, too
  bool passes_on = false;  // `run` gets the whole line, flags included, except --help alone
  // Returns the exit code, or the error to report; one of AsUsage gives exit code 2.
  absl::StatusOr<int> (*run)(const Arguments&, Console*);
  // This command's own help for flags that it shares with other commands.
  std::vector<std::pair<std::string_view, std::string_view>> flag_help = {};
  // The command that prints its help, for messages; empty = "tlm help NAME".
  std::string_view help_line = {};
};

// Returns every command in the order of the help text.
std::span<const Command> Commands();

// Returns null for an unknown name.
const Command* FindCommand(std::string_view name);

// Makes the message "no command "genrate": did you mean generate?".
std::string NoCommand(std::string_view name);

// Runs `tlm args...` (without the program's name); returns the exit code. Call it once: flags keep
// their values.
int RunCommandLine(const std::vector<std::string>& args, Console* console);

// The commands, each in a file of its name.
Command GenerateCommand();
Command ChatCommand();
Command ScoreCommand();
Command VerifyCommand();
Command ForwardCommand();
Command InfoCommand();
Command TokenizeCommand();
Command DetokenizeCommand();
Command HealthCommand();
Command ServeCommand();
Command AdminCommand();
Command BenchCommand();
Command TopCommand();
Command CompletionCommand();
Command VersionCommand();
Command HelpCommand();

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_COMMAND_H_
