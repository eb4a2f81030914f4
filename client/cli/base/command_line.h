// Sets Abseil flags from the command line.
#ifndef TLM_CLIENT_CLI_BASE_COMMAND_LINE_H_
#define TLM_CLIENT_CLI_BASE_COMMAND_LINE_H_

#include <string>
#include <vector>

#include "absl/flags/commandlineflag.h"
#include "absl/status/statusor.h"
#include "client/cli/base/command.h"

namespace tlm::cli {

struct ParsedLine {
  Arguments arguments;
  bool wants_help = false;  // --help or -h was among the flags
};

// Takes `args` (without program and command): --flag=value, --flag value, --switch, --noswitch;
// after
// -- everything is an argument. Flags may stand anywhere; a list flag given again adds to its list,
// any other is overwritten. INVALID_ARGUMENT, in one line, for a flag that `command` does not take
// or a value that does not fit it.
absl::StatusOr<ParsedLine> ParseCommandLine(const Command& command,
                                            const std::vector<std::string>& args);

// Whether a flag takes no value, and whether it may be given again.
bool IsSwitch(const absl::CommandLineFlag& flag);
bool IsList(const absl::CommandLineFlag& flag);

// The flags of `command`, the connection flags included.
std::vector<std::string_view> FlagsOf(const Command& command);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_COMMAND_LINE_H_
