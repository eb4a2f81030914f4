#include "client/cli/completion_scripts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "client/cli/base/command.h"
#include "client/cli/base/command_line.h"
#include "client/cli/base/report.h"

namespace tlm::cli {
namespace {

std::vector<std::string_view> CommandNames() {
  std::vector<std::string_view> names;
  for (const Command& command : Commands()) names.push_back(command.name);
  return names;
}

// Every flag that some command takes, once.
std::vector<std::string_view> AllFlagNames() {
  std::vector<std::string_view> names;
  for (const Command& command : Commands()) {
    for (const std::string_view name : FlagsOf(command)) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

// Whether the first argument is a file or a directory.
bool TakesAFile(const Command& command) { return command.arguments == "[DIRECTORY]"; }

// In single quotes, as POSIX shells read them.
std::string ShellQuoted(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + '\'';
}

std::string FishQuoted(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '\'';
}

// Without what _arguments takes apart.
std::string ZshEscaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\' || c == '[' || c == ']' || c == ':') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string BashFlags(const Command& command) {
  std::string words;
  for (const FlagText& flag : DescribeFlags(command, FlagsOf(command))) {
    words += fmt::format(" --{}{}", flag.name, flag.is_switch ? "" : "=");
    if (flag.can_be_off) words += fmt::format(" --no{}", flag.name);
  }
  return words + " --help";
}

std::string BashValues() {
  std::string cases;
  std::string files;
  for (const std::string_view name : AllFlagNames()) {
    const FlagValues values = ValuesOfFlag(name);
    if (values.is_file) files += fmt::format("{}--{}", files.empty() ? "" : "|", name);
    if (values.choices.empty()) continue;
    cases += fmt::format("      --{}) words='{}' ;;\n", name, fmt::join(values.choices, " "));
  }
  return cases + fmt::format("      {}) files=yes ;;\n", files);
}

// Behind a flag: "::raw processed".
std::string ZshAction(const FlagText& flag) {
  if (flag.is_switch) return "";
  const FlagValues values = ValuesOfFlag(flag.name);
  if (values.is_file) return ":file:_files";
  if (values.choices.empty()) return ":value: ";
  return fmt::format(":value:({})", fmt::join(values.choices, " "));
}

std::string ZshFlags(const Command& command) {
  std::string specs;
  for (const FlagText& flag : DescribeFlags(command, FlagsOf(command))) {
    specs += fmt::format(" \\\n        {}",
                         ShellQuoted(fmt::format("{}--{}{}[{}]{}", flag.is_list ? "*" : "",
                                                 flag.name, flag.is_switch ? "" : "=",
                                                 ZshEscaped(flag.help), ZshAction(flag))));
    if (!flag.can_be_off) continue;
    specs +=
        fmt::format(" \\\n        {}",
                    ShellQuoted(fmt::format("--no{}[the opposite of --{}]", flag.name, flag.name)));
  }
  specs += " \\\n        '--help[what the command does, and its flags]'";
  const std::vector<std::string> words = FirstArguments(command);
  if (!words.empty()) {
    specs += fmt::format(" \\\n        '1:argument:({})'", fmt::join(words, " "));
  } else if (TakesAFile(command)) {
    specs += " \\\n        '1:file:_files'";
  }
  return specs + " \\\n        '*:argument:()'";
}

std::string FishFlags(const Command& command) {
  const std::string begin = fmt::format("complete -c tlm -n '__tlm_command {}'", command.name);
  std::string lines;
  for (const FlagText& flag : DescribeFlags(command, FlagsOf(command))) {
    const FlagValues values = ValuesOfFlag(flag.name);
    std::string value = flag.is_switch ? "" : values.is_file ? " -r -F" : " -x";
    if (!values.choices.empty()) {
      value += fmt::format(" -a '{}'", fmt::join(values.choices, " "));
    }
    lines += fmt::format("{} -l {}{} -d {}\n", begin, flag.name, value, FishQuoted(flag.help));
    if (!flag.can_be_off) continue;
    lines += fmt::format("{} -l no{} -d 'the opposite of --{}'\n", begin, flag.name, flag.name);
  }
  lines += fmt::format("{} -l help -d 'what the command does, and its flags'\n", begin);
  const std::vector<std::string> words = FirstArguments(command);
  if (!words.empty()) lines += fmt::format("{} -a '{}'\n", begin, fmt::join(words, " "));
  if (TakesAFile(command)) lines += fmt::format("{} -F\n", begin);
  return lines;
}

}  // namespace

std::string BashCompletion() {
  std::string cases;
  for (const Command& command : Commands()) {
    cases += fmt::format("    {}) flags='{}' arguments='{}'{} ;;\n", command.name,
                         BashFlags(command).substr(1), fmt::join(FirstArguments(command), " "),
                         TakesAFile(command) ? " argument_files=yes" : "");
  }
  // A word may end at "=" (COMP_WORDBREAKS): then the flag, "=" and the value are three words.
  constexpr std::string_view kBegin = R"(# Completion of tlm in bash; made by `tlm completion bash`.
_tlm() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}
  local flag= prefix= words= files= flags= arguments= argument_files=
  COMPREPLY=()
  case ${COMP_WORDS[1]} in
)";
  constexpr std::string_view kMiddle = R"(  esac
  if [[ $cur == = ]]; then
    flag=$prev cur=
  elif [[ $prev == = ]]; then
    flag=${COMP_WORDS[COMP_CWORD-2]}
  elif [[ $cur == --*=* ]]; then
    flag=${cur%%=*} prefix=$flag= cur=${cur#*=}
  elif [[ $prev == --* && " $flags " == *" $prev= "* ]]; then
    flag=$prev
  fi
  if (( COMP_CWORD == 1 )); then
)";
  constexpr std::string_view kValues = R"(  elif [[ $flag ]]; then
    case $flag in
)";
  constexpr std::string_view kEnd = R"(    esac
  elif [[ $cur == -* ]]; then
    words=$flags
  elif (( COMP_CWORD == 2 )); then
    words=$arguments files=$argument_files
  fi
  if [[ $files ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -P "$prefix" -f -- "$cur")
  elif [[ $words ]]; then
    mapfile -t COMPREPLY < <(compgen -P "$prefix" -W "$words" -- "$cur")
  fi
  if [[ ${COMPREPLY[0]-} == *= ]]; then compopt -o nospace 2>/dev/null; fi
}
complete -F _tlm tlm
)";
  return fmt::format("{}{}{}    words='{}'\n{}{}{}", kBegin, cases, kMiddle,
                     fmt::join(CommandNames(), " "), kValues, BashValues(), kEnd);
}

std::string ZshCompletion() {
  std::string commands;
  std::string cases;
  for (const Command& command : Commands()) {
    commands +=
        fmt::format("        {}\n",
                    ShellQuoted(fmt::format("{}:{}", command.name, ZshEscaped(command.summary))));
    cases +=
        fmt::format("      {})\n        _arguments -S{} ;;\n", command.name, ZshFlags(command));
  }
  constexpr std::string_view kBegin = R"(#compdef tlm
# Completion of tlm in zsh; made by `tlm completion zsh`.
_tlm() {
  local context state state_descr line
  local -a commands
  typeset -A opt_args
  _arguments -C '1:command:->command' '*::argument:->arguments'
  case $state in
    command)
      commands=(
)";
  constexpr std::string_view kMiddle = R"(      )
      _describe command commands ;;
    arguments)
      case $words[1] in
)";
  constexpr std::string_view kEnd = R"(      esac ;;
  esac
}
if [[ ${funcstack[1]-} == _tlm ]]; then
  _tlm "$@"
else
  compdef _tlm tlm
fi
)";
  return fmt::format("{}{}{}{}{}", kBegin, commands, kMiddle, cases, kEnd);
}

std::string FishCompletion() {
  std::string script = R"(# Completion of tlm in fish; made by `tlm completion fish`.
function __tlm_command
    set -l words (commandline -opc)
    test (count $words) -gt 1; and test $words[2] = $argv[1]
end
complete -c tlm -f
)";
  for (const Command& command : Commands()) {
    script +=
        fmt::format("complete -c tlm -n 'test (count (commandline -opc)) -eq 1' -a {} -d {}\n",
                    command.name, FishQuoted(command.summary));
    script += FishFlags(command);
  }
  return script;
}

int RunCompletion(const Arguments& arguments, Console* console) {
  const std::string shell = arguments.size() == 1 ? arguments[0] : "";
  if (shell == "bash") {
    console->out << BashCompletion();
  } else if (shell == "zsh") {
    console->out << ZshCompletion();
  } else if (shell == "fish") {
    console->out << FishCompletion();
  } else {
    return ReportUsage("completion", "takes one of bash, zsh and fish", console);
  }
  return kSuccess;
}

}  // namespace tlm::cli
