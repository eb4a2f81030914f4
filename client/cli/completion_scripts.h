// Scripts that complete this program's commands and flags, from what the commands say of
// themselves.
#ifndef TLM_CLIENT_CLI_COMPLETION_SCRIPTS_H_
#define TLM_CLIENT_CLI_COMPLETION_SCRIPTS_H_

#include <string>

namespace tlm::cli {

std::string BashCompletion();
std::string ZshCompletion();
std::string FishCompletion();

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_COMPLETION_SCRIPTS_H_
