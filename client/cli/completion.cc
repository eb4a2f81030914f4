#include "client/cli/completion.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "absl/strings/str_split.h"
#include "client/cli/base/command.h"
#include "client/cli/base/command_line.h"
#include "client/cli/base/report.h"
#include "model/config/presets.h"

namespace tlm::cli {
namespace {

// The scripts run `tlm completion candidates -- WORD...`, which prints a line for each candidate:
// text, tab, description; or ":files".

constexpr std::string_view kBashScript =
    R"(# Completion of tlm in bash; made by `tlm completion bash`.
_tlm() {
  local cur=${COMP_WORDS[COMP_CWORD]} prefix= lines
  mapfile -t lines < <("${COMP_WORDS[0]/#\~/$HOME}" completion candidates -- \
                         "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  if [[ ${lines[0]-} == :files ]]; then
    if [[ $cur == = ]]; then cur=; fi
    if [[ $cur == --*=* ]]; then prefix=${cur%%=*}= cur=${cur#*=}; fi
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -P "$prefix" -f -- "$cur")
  else
    COMPREPLY=("${lines[@]%%$'\t'*}")
  fi
  if [[ ${COMPREPLY[0]-} == *= ]]; then compopt -o nospace 2>/dev/null; fi
}
complete -F _tlm tlm
)";

constexpr std::string_view kZshScript = R"(#compdef tlm
# Completion of tlm in zsh; made by `tlm completion zsh`.
_tlm() {
  local line
  local -a lines words_ended words_open
  lines=("${(@f)$(${~words[1]} completion candidates -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ $lines[1] == :files ]]; then
    compset -P '--*='
    _files
    return
  fi
  for line in $lines; do
    if [[ ${line%%$'\t'*} == *= ]]; then
      words_open+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    else
      words_ended+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    fi
  done
  _describe -t arguments argument words_ended -- words_open -S ''
}
if [[ ${funcstack[1]-} == _tlm ]]; then
  _tlm "$@"
else
  compdef _tlm tlm
fi
)";

constexpr std::string_view kFishScript =
    R"(# Completion of tlm in fish; made by `tlm completion fish`.
function __tlm_candidates
    set -l words (commandline -opc)
    set -l token (commandline -ct)
    set -l lines ($words[1] completion candidates -- $words[2..] "$token" 2>/dev/null)
    if test "$lines[1]" = :files
        set -l prefix (string match -r '^--[^=]*=' -- "$token")
        printf '%s\n' "$prefix"(__fish_complete_path (string replace -r '^--[^=]*=' '' -- "$token"))
    else
        printf '%s\n' $lines
    end
end
complete -c tlm -f -a '(__tlm_candidates)'
)";

constexpr std::string_view kFileFlags =
    "api_key_file ca_file client_cert client_key grammar json_schema npy prompts_file "
    "structural_tag tools";

// Returns some of a flag's values; empty: any text.
std::vector<std::string> ValuesOf(std::string_view flag) {
  static const std::map<std::string_view, std::vector<std::string>> kValues = {
      {"dtype", {"float32", "bfloat16", "float16"}},
      {"format", {"text", "man"}},
      {"logprobs_mode", {"raw", "processed"}},
      {"positions", {"last", "all"}},
      {"preset", PresetNames()},
      {"reasoning", {"on", "off"}},
      {"tool_choice", {"auto", "none", "required"}},
      {"values", {"logits", "log_probabilities", "probabilities"}}};
  const auto values = kValues.find(flag);
  return values == kValues.end() ? std::vector<std::string>() : values->second;
}

void Add(std::string text, std::string_view description, std::string_view beginning,
         Completion* completion) {
  if (!text.starts_with(beginning)) return;
  completion->candidates.push_back({std::move(text), std::string(description)});
}

Completion CompleteCommand(std::string_view beginning) {
  Completion completion;
  for (const Command& command : Commands()) {
    Add(std::string(command.name), command.summary, beginning, &completion);
  }
  return completion;
}

Completion CompleteFlag(const Command& command, std::string_view beginning) {
  Completion completion;
  for (const FlagText& flag : DescribeFlags(command, FlagsOf(command))) {
    Add(fmt::format("--{}{}", flag.name, flag.is_switch ? "" : "="), flag.help, beginning,
        &completion);
    if (!flag.can_be_off) continue;
    Add("--no" + flag.name, fmt::format("the opposite of --{}", flag.name), beginning, &completion);
  }
  Add("--help", "what the command does, and its flags", beginning, &completion);
  return completion;
}

// `flag` begins with dashes; `prefix` is the part of the last word before the value.
Completion CompleteValue(std::string_view flag, const std::string& prefix,
                         std::string_view beginning) {
  Completion completion;
  const std::string_view name = flag.substr(std::min<size_t>(flag.size(), 2));
  const std::vector<std::string_view> file_flags = FlagNames(kFileFlags);
  completion.files = std::find(file_flags.begin(), file_flags.end(), name) != file_flags.end();
  for (const std::string& value : ValuesOf(name)) {
    Add(prefix + value, "", prefix + std::string(beginning), &completion);
  }
  return completion;
}

Completion CompleteFirstArgument(const Command& command, std::string_view beginning) {
  if (command.arguments == "[COMMAND]") return CompleteCommand(beginning);
  Completion completion;
  completion.files = command.arguments == "[DIRECTORY]" || command.arguments.starts_with("[MODEL]");
  // "load|abort [REQUEST_ID...]"
  const std::string choices(command.arguments.substr(0, command.arguments.find(' ')));
  if (choices.find('|') == std::string::npos) return completion;
  for (const absl::string_view choice : absl::StrSplit(choices, '|')) {
    Add(std::string(choice), "", beginning, &completion);
  }
  return completion;
}

bool TakesValue(const Command& command, std::string_view word) {
  const std::vector<FlagText> flags = DescribeFlags(command, FlagsOf(command));
  return std::any_of(flags.begin(), flags.end(), [word](const FlagText& flag) {
    return !flag.is_switch && word == "--" + flag.name;
  });
}

absl::StatusOr<int> RunCompletion(const Arguments& arguments, Console* console) {
  static const std::map<std::string, std::string_view> kScripts = {
      {"bash", kBashScript}, {"zsh", kZshScript}, {"fish", kFishScript}};
  if (!arguments.empty() && arguments[0] == "candidates") {
    const Completion completion = Complete({arguments.begin() + 1, arguments.end()});
    if (completion.files) console->out << ":files\n";
    for (const auto& [text, description] : completion.candidates) {
      console->out << text << '\t' << description << '\n';
    }
    return kSuccess;
  }
  const auto script = arguments.size() == 1 ? kScripts.find(arguments[0]) : kScripts.end();
  if (script == kScripts.end()) return UsageError("takes one of bash, zsh and fish");
  console->out << script->second;
  return kSuccess;
}

}  // namespace

Completion Complete(const std::vector<std::string>& words) {
  if (words.empty()) return {};
  const std::string& last = words.back();
  if (words.size() == 1) return CompleteCommand(last);
  const Command* command = FindCommand(words[0]);
  if (command == nullptr) return {};
  const std::string& previous = words[words.size() - 2];
  if (last == "=") return CompleteValue(previous, "", "");
  if (previous == "=" && words.size() > 2) return CompleteValue(words[words.size() - 3], "", last);
  if (const size_t equals = last.find('='); last.starts_with("--") && equals != last.npos) {
    return CompleteValue(last.substr(0, equals), last.substr(0, equals + 1),
                         last.substr(equals + 1));
  }
  if (TakesValue(*command, previous)) return CompleteValue(previous, "", last);
  if (last.starts_with('-')) return CompleteFlag(*command, last);
  return words.size() == 2 ? CompleteFirstArgument(*command, last) : Completion();
}

Command CompletionCommand() {
  return {.name = "completion",
          .arguments = "bash|zsh|fish",
          .summary = "print a shell script that completes commands and flags",
          .details = R"(  source <(tlm completion bash)
  tlm completion zsh > ~/.zfunc/_tlm        # a folder in $fpath
  tlm completion fish > ~/.config/fish/completions/tlm.fish)",
          .run = RunCompletion};
}

}  // namespace tlm::cli
