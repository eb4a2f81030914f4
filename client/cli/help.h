// The manual pages, generated from the commands and their flags.
#ifndef TLM_CLIENT_CLI_HELP_H_
#define TLM_CLIENT_CLI_HELP_H_

#include <string>

#include "client/cli/base/command.h"

namespace tlm::cli {

// tlm(1): all commands.
std::string ProgramManPage();

// tlm-COMMAND(1): one command.
std::string CommandManPage(const Command& command);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_HELP_H_
