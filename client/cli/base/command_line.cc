#include "client/cli/base/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/status/status.h"
#include "client/cli/base/connection.h"
#include "client/cli/base/flag_types.h"
#include "client/cli/base/text.h"
#include "model/base/errors.h"
#include "model/base/program/flag_errors.h"

namespace tlm::cli {
namespace {

// Returns null if the command has no flag of that name.
absl::CommandLineFlag* FindFlag(const Command& command, std::string_view name) {
  const std::vector<std::string_view> flags = FlagsOf(command);
  if (std::find(flags.begin(), flags.end(), name) == flags.end()) return nullptr;
  return absl::FindCommandLineFlag(absl::string_view(name.data(), name.size()));
}

bool IsSwitch(const absl::CommandLineFlag& flag) {
  return flag.IsOfType<bool>() || flag.IsOfType<std::optional<bool>>();
}

// Returns the separator of a list flag's values; empty for other flags.
std::string_view SeparatorOf(const absl::CommandLineFlag& flag) {
  static constexpr char kRecordSeparator = TemplateArguments::kSeparator;
  if (flag.IsOfType<StringList>() || flag.IsOfType<IdList>() || flag.IsOfType<BiasList>()) {
    return ",";
  }
  if (flag.IsOfType<IdLists>() || flag.IsOfType<TextList>()) return ";";
  if (flag.IsOfType<TemplateArguments>()) return {&kRecordSeparator, 1};
  return "";
}

absl::Status SetFlag(absl::CommandLineFlag* flag, std::string value, bool seen_before) {
  const std::string_view separator = SeparatorOf(*flag);
  if (seen_before && !separator.empty()) {
    value = fmt::format("{}{}{}", flag->CurrentValue(), separator, value);
  }
  std::string error;
  if (flag->ParseFrom(value, &error)) return absl::OkStatus();
  // The error may quote the whole value.
  constexpr size_t kMaxShownColumns = 300;
  return InvalidArgument("{}",
                         Shortened(OneLine(BadFlagValue(*flag, value, error)), kMaxShownColumns));
}

class Parser {
 public:
  Parser(const Command& command, const std::vector<std::string>& args)
      : command_(command), args_(args) {}

  absl::StatusOr<ParsedLine> Parse() {
    while (next_ < args_.size()) {
      const std::string& arg = args_[next_++];
      if (arg == "--") {
        line_.arguments.insert(line_.arguments.end(), args_.begin() + static_cast<ptrdiff_t>(next_),
                               args_.end());
        break;
      }
      if (arg == "--help" || arg == "-h") {
        line_.wants_help = true;
      } else if (arg.size() < 2 || arg[0] != '-') {
        line_.arguments.push_back(arg);
      } else {
        TLM_RETURN_IF_ERROR(ParseFlag(arg));
      }
    }
    return std::move(line_);
  }

 private:
  absl::Status ParseFlag(std::string_view arg) {
    const bool has_dashes = arg.starts_with("--");
    std::string_view name = arg.substr(has_dashes ? 2 : 0);
    std::optional<std::string> value;
    if (const size_t equals = name.find('='); equals != std::string_view::npos) {
      value = std::string(name.substr(equals + 1));
      name = name.substr(0, equals);
    }
    absl::CommandLineFlag* flag = has_dashes ? FindFlag(command_, name) : nullptr;
    if (flag == nullptr && !value && has_dashes && name.starts_with("no")) {
      flag = FindFlag(command_, name.substr(2));
      if (flag != nullptr && IsSwitch(*flag)) return SetFlag(flag, "false", false);
      flag = nullptr;
    }
    if (flag == nullptr) {
      std::string hint = has_dashes ? DidYouMean(name, FlagsOf(command_), "--") : "";
      if (hint.empty()) {
        hint = fmt::format("; `{}` lists them (put -- before an argument that begins with a dash)",
                           HelpLine());
      }
      return InvalidArgument("no flag {}{}{}", has_dashes ? "--" : "", Printable(name), hint);
    }
    if (!value && IsSwitch(*flag)) value = "true";
    if (!value) {
      if (next_ == args_.size()) return InvalidArgument("--{} needs a value", name);
      value = args_[next_++];
    }
    const bool seen_before = std::find(seen_.begin(), seen_.end(), flag) != seen_.end();
    seen_.push_back(flag);
    return SetFlag(flag, *std::move(value), seen_before);
  }

  std::string HelpLine() const {
    return command_.help_line.empty() ? fmt::format("tlm help {}", command_.name)
                                      : std::string(command_.help_line);
  }

  const Command& command_;
  const std::vector<std::string>& args_;
  size_t next_ = 0;
  std::vector<absl::CommandLineFlag*> seen_;
  ParsedLine line_;
};

FlagText Describe(const Command& command, std::string_view name,
                  const absl::CommandLineFlag& flag) {
  FlagText text;
  text.name = name;
  text.help = flag.Help();
  for (const auto& [flag_name, help] : command.flag_help) {
    if (flag_name == name) text.help = help;
  }
  text.is_switch = IsSwitch(flag);
  const std::string value = flag.DefaultValue();
  text.can_be_off = text.is_switch && value != "false";
  if (value != "false" && value != "0" && value != "inf") text.default_value = value;
  return text;
}

}  // namespace

absl::StatusOr<ParsedLine> ParseCommandLine(const Command& command,
                                            const std::vector<std::string>& args) {
  return Parser(command, args).Parse();
}

std::vector<std::string_view> FlagNames(std::string_view names) {
  std::vector<std::string_view> divided;
  while (true) {
    names.remove_prefix(std::min(names.find_first_not_of(' '), names.size()));
    if (names.empty()) return divided;
    divided.push_back(names.substr(0, names.find(' ')));
    names.remove_prefix(divided.back().size());
  }
}

std::vector<std::string_view> FlagsOf(const Command& command) {
  std::vector<std::string_view> flags = FlagNames(command.flags);
  if (command.connects) {
    const std::vector<std::string_view> connection = FlagNames(kConnectionFlags);
    flags.insert(flags.end(), connection.begin(), connection.end());
  }
  return flags;
}

std::vector<FlagText> DescribeFlags(const Command& command,
                                    std::span<const std::string_view> names) {
  std::vector<FlagText> texts;
  for (const std::string_view name : names) {
    const absl::CommandLineFlag* flag = absl::FindCommandLineFlag({name.data(), name.size()});
    if (flag != nullptr) texts.push_back(Describe(command, name, *flag));
  }
  return texts;
}

}  // namespace tlm::cli
