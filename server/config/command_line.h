// What Abseil's flags need around them: help, version, exit statuses, and reading values back. The
// flags themselves are in server/config/options.cc.
#ifndef TLM_SERVER_CONFIG_COMMAND_LINE_H_
#define TLM_SERVER_CONFIG_COMMAND_LINE_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tlm {

// Exit statuses of the program.
inline constexpr int kExitFailure = 1;  // could not start
inline constexpr int kExitUsage = 2;    // the command line is wrong
inline constexpr int kExitForced = 3;   // the engine did not stop

// Sets the flags; what is left, the program's name first. Ends the process itself, after a line on
// stderr or the help, for --help, --helpman and --version (status 0) and for what Abseil refuses:
// an unknown flag, or a value that is not of the flag's type (kExitUsage).
std::vector<char*> ParseFlags(int argc, char** argv);

// tlm-server(8), made of the flags and what they say of themselves.
std::string ServerManPage();

// A flag as the command line would have it; a secret's value is masked.
struct ConfigOption {
  std::string name;  // without dashes
  std::string value;
  std::string default_value;
};

// Every flag of the server, by name. Of `secret_flags`, a value that is not the default is
// kMaskedValue. After ParseFlags.
std::vector<ConfigOption> FlagValues(std::span<const std::string_view> secret_flags);
inline constexpr char kMaskedValue[] = "(masked)";

}  // namespace tlm

#endif  // TLM_SERVER_CONFIG_COMMAND_LINE_H_
