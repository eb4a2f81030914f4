// What tlm-keys does.
#ifndef TLM_SERVER_AUTH_KEYS_COMMANDS_H_
#define TLM_SERVER_AUTH_KEYS_COMMANDS_H_

#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/base/clock.h"
#include "server/auth/keys_command_line.h"

namespace tlm {

struct KeysCommand {
  std::string_view name;
  std::string_view usage;  // flags behind the name
  std::string_view help;   // in a line
  std::span<const std::string_view> flags;
  std::span<const std::string_view> switches;
  // What goes to stdout. INVALID_ARGUMENT: the command line is wrong; others: it could not be done,
  // and nothing has changed.
  absl::StatusOr<std::string> (*run)(const KeysArguments& arguments, Clock& clock);
};

// In the order of the help text.
std::span<const KeysCommand> KeysCommands();

}  // namespace tlm

#endif  // TLM_SERVER_AUTH_KEYS_COMMANDS_H_
