// Handles the command line around Abseil's flags: help, version, exit statuses, current values. The
// flags are defined in server/config/options.cc and service_options.cc.
#ifndef TLM_SERVER_CONFIG_COMMAND_LINE_H_
#define TLM_SERVER_CONFIG_COMMAND_LINE_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tlm {

// Exit statuses of the program.
inline constexpr int kExitFailure = 1;  // could not start
inline constexpr int kExitUsage = 2;    // invalid command line
inline constexpr int kExitForced = 3;   // the engine did not stop
inline constexpr int kExitUnheard = 4;  // kExitFailure or kExitUsage, and standard error is broken

// Prints `message` as one line of UTF-8 on standard error and returns `exit_status`. If standard
// error cannot be written, such as a file on a full disk, it writes to the system's log, syslog(3),
// and returns kExitUnheard.
int ReportFailure(std::string_view message, int exit_status);

// Sets the flags; returns the other arguments, without the program's name. The lines of a flagfile
// are arguments in its place. An error names a flagfile that is missing or not a regular file, is
// longer than 1 MiB, or has a line that is not a flag. Ends the process, after printing, for
// --help, -h, --helpman and --version (status 0), and for an unknown flag or a value of the wrong
// type (kExitUsage).
absl::StatusOr<std::vector<std::string>> ParseFlags(int argc, char** argv);

// Returns the manual page tlm-server(8), generated from the flags and their help.
std::string ServerManPage();

// A flag with its value as on the command line; a secret's value is masked.
struct ConfigOption {
  std::string name;  // without dashes
  std::string value;
  std::string default_value;
};

// Returns every flag of the server, sorted by name. The value of a flag in `secret_flags` is
// kMaskedValue unless it is the default. Call after ParseFlags.
std::vector<ConfigOption> FlagValues(std::span<const std::string_view> secret_flags);
inline constexpr char kMaskedValue[] = "(masked)";

}  // namespace tlm

#endif  // TLM_SERVER_CONFIG_COMMAND_LINE_H_
