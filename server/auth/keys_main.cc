// tlm-keys: makes and changes the file of API keys that tlm-server reads.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/base/descriptor.h"
#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/base/program/flag_errors.h"
#include "model/base/program/man_page.h"
#include "server/auth/keys_commands.h"

namespace {

// The same exit statuses as tlm-server's.
constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;

constexpr std::string_view kSummary = "manages the key file of tlm-server --api_keys=FILE";
constexpr std::string_view kFileText =
    "FILE is replaced in one step, and a running server reads it within seconds. It holds salted\n"
    "hashes, from which no key can be recovered. Commands that add entries create a missing FILE.";
constexpr std::string_view kExitText =
    "0 success, 1 failure without a change of the file (a printed key is not valid), 2 invalid "
    "command line.";

std::string Help() {
  std::string text =
      fmt::format("tlm-keys: {}.\n\n  tlm-keys COMMAND --file=FILE [flags]\n\n", kSummary);
  for (const tlm::KeysCommand& command : tlm::KeysCommands()) {
    text += fmt::format("  {:<12} {}\n", command.name, command.help);
    if (!command.usage.empty()) text += fmt::format("  {:<12} {}\n", "", command.usage);
  }
  return text + fmt::format("\n{}\n\nExit status: {}\n", kFileText, kExitText);
}

std::string Manual() {
  tlm::ManPage page(
      {.name = "tlm-keys", .section = 8, .date = tlm::ManPageDate(), .source = "tlm " TLM_VERSION});
  page.Section("NAME");
  page.Text(fmt::format("tlm-keys - {}", kSummary));
  page.Section("SYNOPSIS");
  page.Synopsis("tlm-keys", "COMMAND --file=FILE [FLAGS]");
  page.Section("DESCRIPTION");
  page.Text(kFileText);
  page.Section("COMMANDS");
  for (const tlm::KeysCommand& command : tlm::KeysCommands()) {
    page.Subsection(fmt::format("{} --file=FILE {}", command.name, command.usage));
    page.Text(fmt::format("{}.", command.help));
  }
  page.Section("EXIT STATUS");
  page.Text(kExitText);
  page.Section("SEE ALSO");
  page.Text("tlm-server(8)");
  return page.text();
}

int Fail(std::string message, int exit_status) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  std::fprintf(stderr, "tlm-keys: %s\n", tlm::OneLine(message).c_str());
  return exit_status;
}

std::string NoCommand(std::string_view name) {
  std::vector<std::string_view> names;
  for (const tlm::KeysCommand& command : tlm::KeysCommands()) names.push_back(command.name);
  const std::string nearest = tlm::DidYouMean(name, names);
  return fmt::format("no command {}{}", tlm::Quoted(name),
                     nearest.empty() ? ": try tlm-keys --help" : nearest);
}

absl::Status Write(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    return tlm::FailedPrecondition("cannot write to the standard output: {}", std::strerror(errno));
  }
  return absl::OkStatus();
}

int Print(const std::string& text) {
  const absl::Status status = Write(text);
  return status.ok() ? EXIT_SUCCESS : Fail(std::string(status.message()), kExitFailure);
}

int Run(const tlm::KeysCommand& command, std::span<const char* const> arguments) {
  const absl::StatusOr<tlm::KeysArguments> parsed =
      tlm::KeysArguments::Parse(arguments, command.flags, command.switches);
  const absl::Status status =
      parsed.ok() ? command.run(*parsed, *tlm::Clock::Wall(), Write) : parsed.status();
  if (status.ok()) return EXIT_SUCCESS;
  return Fail(fmt::format("{}: {}", command.name, std::string(status.message())),
              absl::IsInvalidArgument(status) ? kExitUsage : kExitFailure);
}

}  // namespace

TLM_OPEN_STANDARD_DESCRIPTORS_FIRST;

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // the write fails instead, and its change is undone
  const std::vector<const char*> arguments(argv + std::min(argc, 1), argv + argc);
  for (const std::string_view argument : arguments) {
    if (argument == "--help" || argument == "-h") return Print(Help());
    if (argument == "--helpman") return Print(Manual());
    if (argument == "--version") return Print("tlm-keys " TLM_VERSION "\n");
  }
  if (arguments.empty()) return Fail("no command: try tlm-keys --help", kExitUsage);
  if (arguments.front() == std::string_view("help")) return Print(Help());
  for (const tlm::KeysCommand& command : tlm::KeysCommands()) {
    if (command.name == arguments.front()) {
      return Run(command, std::span(arguments).subspan(1));
    }
  }
  return Fail(NoCommand(arguments.front()), kExitUsage);
}
