// The standard streams of a command.
#ifndef TLM_CLIENT_CLI_BASE_CONSOLE_H_
#define TLM_CLIENT_CLI_BASE_CONSOLE_H_

#include <istream>
#include <ostream>

namespace tlm::cli {

struct Console {
  std::istream& in;
  std::ostream& out;  // results only
  std::ostream& err;  // everything else
  bool out_is_terminal = false;
  bool err_is_terminal = false;
  bool in_is_terminal = false;
};

// Exit codes of the program.
inline constexpr int kSuccess = 0;
inline constexpr int kFailure = 1;
inline constexpr int kUsageError = 2;

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_CONSOLE_H_
