// Defines the commands of tlm-keys.
#ifndef TLM_SERVER_AUTH_KEYS_COMMANDS_H_
#define TLM_SERVER_AUTH_KEYS_COMMANDS_H_

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/base/clock.h"

namespace tlm {

// The arguments `--name=value`, `--name value`, or for switches `--name`; each at most once.
class KeysArguments {
 public:
  // INVALID_ARGUMENT for anything but flags with these names.
  static absl::StatusOr<KeysArguments> Parse(std::span<const char* const> arguments,
                                             std::span<const std::string_view> flags,
                                             std::span<const std::string_view> switches);

  bool Has(std::string_view flag) const { return Find(flag).has_value(); }
  std::optional<std::string> Find(std::string_view flag) const;
  // INVALID_ARGUMENT when the flag was not given, or is empty.
  absl::StatusOr<std::string> Required(std::string_view flag) const;

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

// Writes a command's output. A key is printed before it becomes valid, so that every valid key was
// printed.
using PrintText = absl::FunctionRef<absl::Status(const std::string& text)>;

struct KeysCommand {
  std::string_view name;
  std::string_view usage;  // flags after the name
  std::string_view help;   // one line
  std::span<const std::string_view> flags;
  std::span<const std::string_view> switches;
  // INVALID_ARGUMENT: the command line is invalid. Other errors: the command or `print` failed, and
  // the file is unchanged.
  absl::Status (*run)(const KeysArguments& arguments, Clock& clock, PrintText print);
};

// Returns the commands in the order of the help text.
std::span<const KeysCommand> KeysCommands();

}  // namespace tlm

#endif  // TLM_SERVER_AUTH_KEYS_COMMANDS_H_
