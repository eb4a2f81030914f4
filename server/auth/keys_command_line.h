// The command line of tlm-keys.
#ifndef TLM_SERVER_AUTH_KEYS_COMMAND_LINE_H_
#define TLM_SERVER_AUTH_KEYS_COMMAND_LINE_H_

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tlm {

// `--name=value`, `--name value`, or for switches `--name`; each at most once.
class KeysArguments {
 public:
  // INVALID_ARGUMENT for anything but flags of these names.
  static absl::StatusOr<KeysArguments> Parse(std::span<const char* const> arguments,
                                             std::span<const std::string_view> flags,
                                             std::span<const std::string_view> switches);

  bool Has(std::string_view flag) const { return Find(flag).has_value(); }
  std::optional<std::string> Find(std::string_view flag) const;
  // INVALID_ARGUMENT when it was not given, or is empty.
  absl::StatusOr<std::string> Required(std::string_view flag) const;

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

}  // namespace tlm

#endif  // TLM_SERVER_AUTH_KEYS_COMMAND_LINE_H_
