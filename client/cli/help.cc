#include <fmt/format.h>

#include <algorithm>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "client/cli/command.h"
#include "client/cli/connection_flags.h"
#include "client/cli/report.h"
#include "client/cli/table.h"
#include "client/cli/text.h"

namespace tlm::cli {
namespace {

void PrintFlags(std::span<const std::string_view> names, std::ostream& out) {
  Table table({Align::kLeft, Align::kLeft});
  for (const std::string_view name : names) {
    const absl::CommandLineFlag* flag = absl::FindCommandLineFlag({name.data(), name.size()});
    if (flag == nullptr) continue;
    const std::string value = flag->DefaultValue();
    // What says no more than "nothing" is left out.
    const bool worth_telling = !value.empty() && value != "false" && value != "0" && value != "inf";
    table.AddRow({fmt::format("--{}", name),
                  flag->Help() + (worth_telling ? fmt::format(" [{}]", value) : "")});
  }
  table.Print(out, 2);
}

void PrintCommand(const Command& command, std::ostream& out) {
  out << fmt::format("tlm {}{}{}{}\n\n{}.\n", command.name, command.flags.empty() ? "" : " [FLAGS]",
                     command.arguments.empty() ? "" : " ", command.arguments, command.summary);
  if (!command.details.empty()) out << command.details << '\n';
  if (!command.flags.empty()) out << "\nFlags:\n";
  PrintFlags(command.flags, out);
  if (command.connects) {
    out << "\nConnection:\n";
    PrintFlags(ConnectionFlagNames(), out);
  }
}

void PrintOverview(std::ostream& out) {
  out << "tlm COMMAND [FLAGS] [ARGUMENTS]\n\nTalks to a tlm server.\n\nCommands:\n";
  Table table({Align::kLeft, Align::kLeft});
  for (const Command& command : Commands()) {
    table.AddRow(
        {fmt::format("{} {}", command.name, command.arguments), std::string(command.summary)});
  }
  table.Print(out, 2);
  out << "\nExit code: 0 success, 1 failure, 2 wrong usage, 130 interrupted.\n";
}

}  // namespace

int RunHelp(const Arguments& arguments, Console* console) {
  if (arguments.size() > 1) return ReportUsage("help", "takes one command at the most", console);
  if (arguments.empty()) {
    PrintOverview(console->out);
    return kSuccess;
  }
  const Command* command = FindCommand(arguments[0]);
  if (command == nullptr) {
    return ReportUsage("help", fmt::format("no command {}", Quoted(arguments[0])), console);
  }
  PrintCommand(*command, console->out);
  return kSuccess;
}

}  // namespace tlm::cli
