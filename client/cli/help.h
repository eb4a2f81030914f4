// Generates the manual pages from the commands and their flags.
#ifndef TLM_CLIENT_CLI_HELP_H_
#define TLM_CLIENT_CLI_HELP_H_

#include <string>

#include "client/cli/base/command.h"

namespace tlm::cli {

// Returns tlm(1), with all commands.
std::string ProgramManPage();

// Returns tlm-COMMAND(1), with one command.
std::string CommandManPage(const Command& command);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_HELP_H_
