// Command-line handling around Abseil's flags: help, version, exit statuses, current values. The
// flags are defined in server/config/options.cc and service_options.cc.
#ifndef TLM_SERVER_CONFIG_COMMAND_LINE_H_
#define TLM_SERVER_CONFIG_COMMAND_LINE_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tlm {

// Exit statuses of the program.
inline constexpr int kExitFailure = 1;  // could not start
inline constexpr int kExitUsage = 2;    // invalid command line
inline constexpr int kExitForced = 3;   // the engine did not stop

// Sets the flags; returns the other arguments, the program's name first. Ends the process, after
// printing, for --help, --helpman and --version (status 0), and for an unknown flag or a value that
// is not of the flag's type (kExitUsage).
std::vector<char*> ParseFlags(int argc, char** argv);

// tlm-server(8), generated from the flags and their help.
std::string ServerManPage();

// A flag with its value as on the command line; a secret's value is masked.
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
