#include "client/cli/man_pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "client/cli/base/command_line.h"
#include "client/cli/base/connection.h"
#include "model/base/man_page.h"

namespace tlm::cli {
namespace {

constexpr std::string_view kExitStatus =
    "0 success; 1 failure; 2 wrong usage; 130 ended by Ctrl-C, 143 by SIGTERM.";
constexpr std::string_view kEnvironment =
    "the API key, where --api_key_file is not given; it is sent to other hosts only with TLS";

ManPageHead HeadOf(std::string name) {
  ManPageHead head;
  head.name = std::move(name);
  head.date = ManPageDate();
  head.source = "tlm " TLM_VERSION;
  return head;
}

void AddFlags(const Command& command, std::span<const std::string_view> names, ManPage* page) {
  for (const FlagText& flag : DescribeFlags(command, names)) {
    std::string meaning = flag.help + '.';
    if (!flag.default_value.empty()) meaning += fmt::format(" Default: {}.", flag.default_value);
    page->Item("--" + flag.name, flag.is_switch ? "" : "VALUE", meaning);
  }
}

// Connection flags that mean something of their own to the command.
std::vector<std::string_view> OwnConnectionFlags(const Command& command) {
  const std::span<const std::string_view> connection = ConnectionFlagNames();
  std::vector<std::string_view> names;
  for (const auto& [name, help] : command.flag_help) {
    if (std::find(connection.begin(), connection.end(), name) != connection.end()) {
      names.push_back(name);
    }
  }
  return names;
}

std::string SynopsisOf(const Command& command) {
  const bool has_flags = !command.flags.empty() || command.connects;
  if (!has_flags || command.arguments.empty()) {
    return has_flags ? "[FLAGS]" : std::string(command.arguments);
  }
  return fmt::format("[FLAGS] {}", command.arguments);
}

void AddEnd(ManPage* page) {
  page->Section("EXIT STATUS");
  page->Text(kExitStatus);
  page->Section("ENVIRONMENT");
  page->Item("TLM_API_KEY", "", std::string(kEnvironment) + '.');
}

// "Looks after a server." of "look after a server".
std::string Sentence(std::string_view summary) {
  std::string sentence(summary);
  if (!sentence.empty() && sentence[0] >= 'a' && sentence[0] <= 'z') sentence[0] -= 32;
  return sentence + '.';
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
    AddFlags(command, command.flags, &page);
    AddFlags(command, OwnConnectionFlags(command), &page);
  }
  page.Section("CONNECTION FLAGS");
  page.Text("Of every command that talks to a server:");
  AddFlags({}, ConnectionFlagNames(), &page);
  AddEnd(&page);
  page.Section("SEE ALSO");
  page.Text("tlm-server(8)");
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
    AddFlags(command, command.flags, &page);
  }
  if (command.connects) {
    page.Section("CONNECTION FLAGS");
    AddFlags(command, ConnectionFlagNames(), &page);
  }
  AddEnd(&page);
  page.Section("SEE ALSO");
  page.Text("tlm(1)");
  return page.text();
}

}  // namespace tlm::cli
