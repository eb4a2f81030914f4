// The commands of the program.
#ifndef TLM_CLIENT_CLI_BASE_COMMAND_H_
#define TLM_CLIENT_CLI_BASE_COMMAND_H_

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/cli/base/console.h"

namespace tlm::cli {

// The command line without flags.
using Arguments = std::vector<std::string>;

struct Command {
  std::string_view name;
  std::string_view arguments;              // "PROMPT"
  std::string_view summary;                // one line for the list of commands
  std::string_view details;                // a paragraph for its own help; may be empty
  std::vector<std::string_view> flags;     // names of the flags it takes, besides connection flags
  bool connects;                           // takes the connection flags
  int (*run)(const Arguments&, Console*);  // returns the exit code
  // Its own help of flags that it shares with other commands.
  std::vector<std::pair<std::string_view, std::string_view>> flag_help = {};
};

// Every command, in the order of the help text.
std::span<const Command> Commands();

// Null for an unknown name.
const Command* FindCommand(std::string_view name);

// "no command "genrate": did you mean generate?"
std::string NoCommand(std::string_view name);

// Runs `tlm args...` (without the program's name); returns the exit code. Call it once: flags keep
// their values.
int RunCommandLine(const std::vector<std::string>& args, Console* console);

int RunGenerate(const Arguments& arguments, Console* console);
int RunChat(const Arguments& arguments, Console* console);
int RunScore(const Arguments& arguments, Console* console);
int RunForward(const Arguments& arguments, Console* console);
int RunInfo(const Arguments& arguments, Console* console);
int RunTokenize(const Arguments& arguments, Console* console);
int RunDetokenize(const Arguments& arguments, Console* console);
int RunHealth(const Arguments& arguments, Console* console);
int RunAdmin(const Arguments& arguments, Console* console);
int RunBench(const Arguments& arguments, Console* console);
int RunTop(const Arguments& arguments, Console* console);
int RunCompletion(const Arguments& arguments, Console* console);
int RunVersion(const Arguments& arguments, Console* console);
int RunHelp(const Arguments& arguments, Console* console);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_COMMAND_H_
