// The manual of this program, from what its commands say of themselves.
#ifndef TLM_CLIENT_CLI_MAN_PAGES_H_
#define TLM_CLIENT_CLI_MAN_PAGES_H_

#include <string>

#include "client/cli/base/command.h"

namespace tlm::cli {

// tlm(1), with every command.
std::string ProgramManPage();

// tlm-COMMAND(1), of one.
std::string CommandManPage(const Command& command);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_MAN_PAGES_H_
