// Parses the command line into Abseil flags, and describes the flags to help, man pages and shells.
#ifndef TLM_CLIENT_CLI_BASE_COMMAND_LINE_H_
#define TLM_CLIENT_CLI_BASE_COMMAND_LINE_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/base/command.h"

namespace tlm::cli {

struct ParsedLine {
  Arguments arguments;
  bool wants_help = false;  // --help or -h was among the flags
};

// Parses `args` (without program and command): --flag=value, --flag value, --switch, --noswitch;
// after -- everything is an argument. Flags and arguments may be mixed; a repeated list flag
// appends to its list, a repeated flag of another type overwrites its value. INVALID_ARGUMENT, in
// one line, for a flag that `command` does not take or a value of the wrong type.
absl::StatusOr<ParsedLine> ParseCommandLine(const Command& command,
                                            const std::vector<std::string>& args);

// Divides names at the spaces between them.
std::vector<std::string_view> FlagNames(std::string_view names);

// Returns the flags of `command`, including the connection flags.
std::vector<std::string_view> FlagsOf(const Command& command);

struct FlagText {
  std::string name;
  std::string help;
  std::string default_value;  // empty also for false, 0 and inf
  bool is_switch = false;     // takes no value: --name, --noname
  bool can_be_off = false;    // a switch that is not off by default, so that --noname is useful
};

// Describes the flags `names` of the command in this order.
std::vector<FlagText> DescribeFlags(const Command& command,
                                    std::span<const std::string_view> names);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_COMMAND_LINE_H_
