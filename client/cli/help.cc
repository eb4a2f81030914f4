#include <fmt/format.h>

#include <algorithm>

#include "absl/flags/flag.h"
#include "client/cli/base/command.h"
#include "client/cli/base/command_line.h"
#include "client/cli/base/connection.h"
#include "client/cli/base/report.h"
#include "client/cli/base/table.h"
#include "client/cli/base/text.h"
#include "client/cli/man_pages.h"

ABSL_FLAG(std::string, format, "text", "text, or man for a manual page: tlm(1), tlm-COMMAND(1)");

namespace tlm::cli {
namespace {

void PrintFlags(const Command& command, std::span<const std::string_view> names,
                std::ostream& out) {
  Table table({Align::kLeft, Align::kLeft});
  for (const FlagText& flag : DescribeFlags(command, names)) {
    const std::string value =
        flag.default_value.empty() ? "" : fmt::format(" [{}]", flag.default_value);
    table.AddRow({fmt::format("--{}", flag.name), flag.help + value});
  }
  table.Print(out, 2);
}

void PrintCommand(const Command& command, std::ostream& out) {
  out << fmt::format("tlm {}{}{}{}\n\n{}.\n", command.name, command.flags.empty() ? "" : " [FLAGS]",
                     command.arguments.empty() ? "" : " ", command.arguments, command.summary);
  if (!command.details.empty()) out << command.details << '\n';
  if (!command.flags.empty()) out << "\nFlags:\n";
  PrintFlags(command, command.flags, out);
  if (command.connects) {
    out << "\nConnection:\n";
    PrintFlags(command, ConnectionFlagNames(), out);
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
  const std::string format = absl::GetFlag(FLAGS_format);
  const bool as_man_page = format == "man";
  if (!as_man_page && format != "text") {
    return ReportUsage("help", fmt::format("--format is text or man, not {}", Quoted(format)),
                       console);
  }
  if (arguments.empty()) {
    if (as_man_page) {
      console->out << ProgramManPage();
    } else {
      PrintOverview(console->out);
    }
    return kSuccess;
  }
  const Command* command = FindCommand(arguments[0]);
  if (command == nullptr) {
    return ReportUsage("help", NoCommand(arguments[0]), console);
  }
  if (as_man_page) {
    console->out << CommandManPage(*command);
  } else {
    PrintCommand(*command, console->out);
  }
  return kSuccess;
}

int RunVersion(const Arguments& arguments, Console* console) {
  if (!arguments.empty()) return ReportUsage("version", "takes no arguments", console);
  console->out << "tlm " TLM_VERSION " (API tlm.v1)\n";
  return kSuccess;
}

}  // namespace tlm::cli
