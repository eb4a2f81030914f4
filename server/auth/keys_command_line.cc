#include "server/auth/keys_command_line.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/program/flag_errors.h"

namespace tlm {
namespace {

bool Contains(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

absl::StatusOr<KeysArguments> KeysArguments::Parse(std::span<const char* const> arguments,
                                                   std::span<const std::string_view> flags,
                                                   std::span<const std::string_view> switches) {
  KeysArguments parsed;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    if (!argument.starts_with("--")) {
      return InvalidArgument("unexpected argument {}: flags are written --name=value",
                             Quoted(argument));
    }
    const size_t equals = argument.find('=');
    const std::string_view name = argument.substr(2, equals == argument.npos ? equals : equals - 2);
    std::string value;
    if (Contains(switches, name)) {
      if (equals != argument.npos) return InvalidArgument("--{} takes no value", name);
    } else if (!Contains(flags, name)) {
      std::vector<std::string_view> known(flags.begin(), flags.end());
      known.insert(known.end(), switches.begin(), switches.end());
      const std::string nearest = DidYouMean(name, known, "--");
      return InvalidArgument("no flag {}{}", Quoted(argument.substr(0, equals)),
                             nearest.empty() ? "; tlm-keys --help lists them" : nearest);
    } else if (equals != argument.npos) {
      value = argument.substr(equals + 1);
    } else if (++i < arguments.size()) {
      value = arguments[i];
    } else {
      return InvalidArgument("--{} needs a value", name);
    }
    if (!parsed.values_.emplace(name, std::move(value)).second) {
      return InvalidArgument("--{} is given twice", name);
    }
  }
  return parsed;
}

std::optional<std::string> KeysArguments::Find(std::string_view flag) const {
  const auto found = values_.find(flag);
  return found == values_.end() ? std::nullopt : std::optional<std::string>(found->second);
}

absl::StatusOr<std::string> KeysArguments::Required(std::string_view flag) const {
  std::optional<std::string> value = Find(flag);
  if (!value.has_value() || value->empty()) return InvalidArgument("--{} is required", flag);
  return *std::move(value);
}

}  // namespace tlm
