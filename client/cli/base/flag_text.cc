#include "client/cli/base/flag_text.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "client/cli/base/command_line.h"
#include "model/config/presets.h"

namespace tlm::cli {
namespace {

std::string HelpOf(const Command& command, std::string_view name,
                   const absl::CommandLineFlag& flag) {
  for (const auto& [flag_name, help] : command.flag_help) {
    if (flag_name == name) return std::string(help);
  }
  return flag.Help();
}

FlagText Describe(const Command& command, std::string_view name,
                  const absl::CommandLineFlag& flag) {
  FlagText text;
  text.name = name;
  text.help = HelpOf(command, name, flag);
  text.is_switch = IsSwitch(flag);
  text.is_list = IsList(flag);
  const std::string value = flag.DefaultValue();
  text.can_be_off = text.is_switch && value != "false";
  if (value != "false" && value != "0" && value != "inf") text.default_value = value;
  return text;
}

}  // namespace

std::vector<FlagText> DescribeFlags(const Command& command,
                                    std::span<const std::string_view> names) {
  std::vector<FlagText> texts;
  for (const std::string_view name : names) {
    const absl::CommandLineFlag* flag = absl::FindCommandLineFlag({name.data(), name.size()});
    if (flag != nullptr) texts.push_back(Describe(command, name, *flag));
  }
  return texts;
}

FlagValues ValuesOfFlag(std::string_view name) {
  static constexpr std::string_view kFiles[] = {"api_key_file", "ca_file", "client_cert",
                                                "client_key",   "npy",     "prompts_file"};
  static const std::map<std::string_view, std::vector<std::string>> kChoices = {
      {"dtype", {"float32", "bfloat16", "float16"}},
      {"format", {"text", "man"}},
      {"logprobs_mode", {"raw", "processed"}},
      {"positions", {"last", "all"}},
      {"preset", PresetNames()},
      {"values", {"logits", "log_probabilities", "probabilities"}}};
  FlagValues values;
  values.is_file = std::find(std::begin(kFiles), std::end(kFiles), name) != std::end(kFiles);
  if (const auto choices = kChoices.find(name); choices != kChoices.end()) {
    values.choices = choices->second;
  }
  return values;
}

std::vector<std::string> FirstArguments(const Command& command) {
  std::vector<std::string> words;
  if (command.arguments == "[COMMAND]") {
    for (const Command& other : Commands()) words.emplace_back(other.name);
    return words;
  }
  // "load|abort [REQUEST_ID...]"
  std::string_view choices = command.arguments.substr(0, command.arguments.find(' '));
  if (choices.find('|') == std::string_view::npos) return words;
  while (true) {
    const size_t end = choices.find('|');
    words.emplace_back(choices.substr(0, end));
    if (end == std::string_view::npos) return words;
    choices.remove_prefix(end + 1);
  }
}

}  // namespace tlm::cli
