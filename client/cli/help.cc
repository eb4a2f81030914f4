#include "client/cli/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "absl/flags/flag.h"
#include "client/cli/base/command_line.h"
#include "client/cli/base/connection.h"
#include "client/cli/base/flag_types.h"
#include "client/cli/base/report.h"
#include "client/cli/base/table.h"
#include "model/base/program/man_page.h"

ABSL_FLAG(std::string, format, "text", "text, or man for a manual page: tlm(1), tlm-COMMAND(1)");

namespace tlm::cli {
namespace {

void PrintFlags(const Command& command, std::string_view names, std::ostream& out) {
  Table table({Align::kLeft, Align::kLeft});
  for (const FlagText& flag : DescribeFlags(command, FlagNames(names))) {
    const std::string value =
        flag.default_value.empty() ? "" : fmt::format(" [{}]", flag.default_value);
    table.AddRow({fmt::format("--{}", flag.name), flag.help + value});
  }
  table.Print(out, 2);
}

std::string SynopsisOf(const Command& command) {
  const bool has_flags = !command.flags.empty() || command.connects;
  return fmt::format("{}{}{}", has_flags ? "[FLAGS]" : "",
                     has_flags && !command.arguments.empty() ? " " : "", command.arguments);
}

void PrintCommand(const Command& command, std::ostream& out) {
  const std::string synopsis = SynopsisOf(command);
  out << fmt::format("tlm {}{}{}\n\n{}.\n", command.name, synopsis.empty() ? "" : " ", synopsis,
                     command.summary);
  if (!command.details.empty()) out << command.details << '\n';
  if (!command.flags.empty()) out << "\nFlags:\n";
  PrintFlags(command, command.flags, out);
  if (command.connects) {
    out << "\nConnection:\n";
    PrintFlags(command, kConnectionFlags, out);
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

ManPageHead HeadOf(const std::string& name) {
  return {.name = name, .section = 1, .date = ManPageDate(), .source = "tlm " TLM_VERSION};
}

void AddFlags(const Command& command, const std::vector<std::string_view>& names, ManPage* page) {
  for (const FlagText& flag : DescribeFlags(command, names)) {
    std::string meaning = flag.help + '.';
    if (!flag.default_value.empty()) meaning += fmt::format(" Default: {}.", flag.default_value);
    page->Item("--" + flag.name, flag.is_switch ? "" : "VALUE", meaning);
  }
}

// Returns the connection flags that the command explains itself.
std::vector<std::string_view> OwnConnectionFlags(const Command& command) {
  const std::vector<std::string_view> connection = FlagNames(kConnectionFlags);
  std::vector<std::string_view> names;
  for (const auto& [name, help] : command.flag_help) {
    if (std::find(connection.begin(), connection.end(), name) != connection.end()) {
      names.push_back(name);
    }
  }
  return names;
}

void AddEnd(std::string_view see_also, ManPage* page) {
  page->Section("EXIT STATUS");
  page->Text("0 success; 1 failure; 2 wrong usage; 130 ended by Ctrl-C, 143 by SIGTERM.");
  page->Section("ENVIRONMENT");
  page->Item("TLM_API_KEY", "",
             "the API key, where --api_key_file is not given; it is sent to other hosts only with "
             "TLS.");
  page->Section("SEE ALSO");
  page->Text(see_also);
}

// Converts "continue a prompt" to "Continue a prompt.".
std::string Sentence(std::string_view summary) {
  std::string sentence(summary);
  if (!sentence.empty() && sentence[0] >= 'a' && sentence[0] <= 'z') sentence[0] -= 32;
  return sentence + '.';
}

absl::StatusOr<int> RunVersion(const Arguments& /*arguments*/, Console* console) {
  console->out << "tlm " TLM_VERSION " (API tlm.v1)\n";
  return kSuccess;
}

absl::StatusOr<int> RunHelp(const Arguments& arguments, Console* console) {
  TLM_ASSIGN_OR_RETURN(const bool as_man_page,
                       AsUsage(ValueOf<bool>("format", absl::GetFlag(FLAGS_format),
                                             {{"text", false}, {"man", true}})));
  const Command* command = arguments.empty() ? nullptr : FindCommand(arguments[0]);
  if (arguments.size() > 1) return UsageError("takes one command at the most");
  if (command == nullptr && !arguments.empty()) return UsageError("{}", NoCommand(arguments[0]));
  if (as_man_page) {
    console->out << (command == nullptr ? ProgramManPage() : CommandManPage(*command));
  } else if (command == nullptr) {
    PrintOverview(console->out);
  } else {
    PrintCommand(*command, console->out);
  }
  return kSuccess;
}

}  // namespace

std::string ProgramManPage() {
  ManPage page(HeadOf("tlm"));
  page.Section("NAME");
  page.Text("tlm - talk to a server of transformer language models");
  page.Section("SYNOPSIS");
  page.Synopsis("tlm", "COMMAND [FLAGS] [ARGUMENTS]");
  page.Section("DESCRIPTION");
  page.Text(
      "Sends requests to tlm-server(8) and prints what it answers. Results go to standard output, "
      "everything else to standard error, errors on one line each. Flags are written --name=VALUE "
      "or --name VALUE, switches --name or --noname; a flag that is not given leaves the choice to "
      "the server. After -- everything is an argument.");
  page.Section("COMMANDS");
  for (const Command& command : Commands()) {
    page.Subsection(fmt::format("tlm {} {}", command.name, SynopsisOf(command)));
    page.Text(Sentence(command.summary));
    page.Text(command.details);
    AddFlags(command, FlagNames(command.flags), &page);
    AddFlags(command, OwnConnectionFlags(command), &page);
  }
  page.Section("CONNECTION FLAGS");
  page.Text("Of every command that talks to a server:");
  AddFlags({}, FlagNames(kConnectionFlags), &page);
  AddEnd("tlm-server(8)", &page);
  return page.text();
}

std::string CommandManPage(const Command& command) {
  const std::string name = fmt::format("tlm-{}", command.name);
  ManPage page(HeadOf(name));
  page.Section("NAME");
  page.Text(fmt::format("{} - {}", name, command.summary));
  page.Section("SYNOPSIS");
  page.Synopsis(fmt::format("tlm {}", command.name), SynopsisOf(command));
  if (!command.details.empty()) {
    page.Section("DESCRIPTION");
    page.Text(command.details);
  }
  if (!command.flags.empty()) {
    page.Section("FLAGS");
    AddFlags(command, FlagNames(command.flags), &page);
  }
  if (command.connects) {
    page.Section("CONNECTION FLAGS");
    AddFlags(command, FlagNames(kConnectionFlags), &page);
  }
  AddEnd("tlm(1)", &page);
  return page.text();
}

Command VersionCommand() {
  return {.name = "version", .summary = "print the version of this program", .run = RunVersion};
}

Command HelpCommand() {
  return {.name = "help",
          .arguments = "[COMMAND]",
          .summary = "print this text, or the flags of a command",
          .flags = "format",
          .run = RunHelp};
}

}  // namespace tlm::cli
