#include "server/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <utility>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/parse.h"
#include "absl/flags/reflection.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "model/base/man_page.h"
#include "server/program_build.h"

namespace tlm {
namespace {

constexpr absl::string_view kProgram = "tlm-server";
constexpr std::string_view kSummary = "serves a transformer language model over gRPC";
constexpr std::string_view kUsage =
    "  tlm-server --model=DIR [--port=50051] [--flagfile=FILE] ...\n"
    "  tlm-server --preset=NAME --init=random [--seed=N] ...\n\n"
    "FILE holds one flag a line. SIGTERM or SIGINT finishes what runs and ends the server with\n"
    "status 0; a second one ends it at once. Other statuses: 1 the server could not start, 2 the\n"
    "command line is wrong, 3 the engine did not stop when it was to end.";

// Abseil ends the process with status 1 for wrong flags and for the help alike, which scripts
// cannot tell from a server that failed to start.
std::atomic<bool> parsing{false};
std::atomic<bool> help_asked{false};

void ExitWithUsageStatus() {
  if (!parsing) return;
  std::cout.flush();
  std::fflush(stdout);
  std::_Exit(help_asked ? EXIT_SUCCESS : kExitUsage);
}

void ConfigureHelp() {
  absl::SetProgramUsageMessage(
      fmt::format("{}.\n\n{}\n--helpman prints the manual page.", kSummary, kUsage));
  absl::FlagsUsageConfig config;
  // Abseil shows the flags of a source file under its name; ours read better under the program's.
  config.normalize_filename = [](absl::string_view file) {
    const bool ours = file.find("server/options.cc") != absl::string_view::npos ||
                      file.find("server/service_options.cc") != absl::string_view::npos;
    return std::string(ours ? kProgram : file);
  };
  const auto ours = [](absl::string_view file) { return file == kProgram; };
  config.contains_helpshort_flags = ours;
  config.contains_help_flags = ours;
  config.contains_helppackage_flags = ours;
  config.version_string = [] {
    return fmt::format("tlm-server {} (build {})\n", TLM_VERSION,
                       ProgramBuildId().value_or("unknown"));
  };
  absl::SetFlagsUsageConfig(config);
}

void ConfigureHelpOnce() {
  static const bool configured = [] {
    ConfigureHelp();
    return std::atexit(ExitWithUsageStatus) == 0;
  }();
  static_cast<void>(configured);
}

// Flags of the server, by name; Abseil's own are left out.
std::vector<const absl::CommandLineFlag*> OwnFlags() {
  std::vector<const absl::CommandLineFlag*> flags;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (flag->Filename() == kProgram) flags.push_back(flag);
  }
  std::sort(flags.begin(), flags.end(),
            [](const auto* a, const auto* b) { return a->Name() < b->Name(); });
  return flags;
}

void AddFlag(const absl::CommandLineFlag& flag, ManPage* page) {
  const std::string value = flag.DefaultValue();
  const std::string told = value.empty() ? "" : fmt::format(" Default: {}.", value);
  page->Item("--" + std::string(flag.Name()), flag.IsOfType<bool>() ? "" : "VALUE",
             flag.Help() + '.' + told);
}

}  // namespace

std::string ServerManPage() {
  ConfigureHelpOnce();
  ManPage page({std::string(kProgram), 8, ManPageDate(), "tlm " TLM_VERSION});
  page.Section("NAME");
  page.Text(fmt::format("{} - {}", std::string(kProgram), kSummary));
  page.Section("SYNOPSIS");
  page.Synopsis(std::string(kProgram), "--model=DIR [FLAGS]");
  page.Section("DESCRIPTION");
  page.Text(kUsage);
  page.Section("FLAGS");
  page.Text("Switches are written --name or --noname.");
  for (const absl::CommandLineFlag* flag : OwnFlags()) AddFlag(*flag, &page);
  page.Section("SEE ALSO");
  page.Text("tlm(1)");
  return page.text();
}

std::vector<char*> ParseFlags(int argc, char** argv) {
  ConfigureHelpOnce();
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--helpman" || argument == "-helpman") {
      std::cout << ServerManPage() << std::flush;
      std::exit(EXIT_SUCCESS);
    }
    if (argument.substr(0, 6) == "--help" || argument.substr(0, 5) == "-help") help_asked = true;
    if (argument == "--version" || argument == "-version") help_asked = true;
  }
  parsing = true;
  std::vector<char*> positional = absl::ParseCommandLine(argc, argv);
  parsing = false;
  return positional;
}

std::vector<ConfigOption> FlagValues(std::span<const std::string_view> secret_flags) {
  std::vector<ConfigOption> options;
  // What a --flagfile sets is in these.
  for (const absl::CommandLineFlag* flag : OwnFlags()) {
    ConfigOption option{std::string(flag->Name()), flag->CurrentValue(), flag->DefaultValue()};
    const bool secret =
        std::find(secret_flags.begin(), secret_flags.end(), option.name) != secret_flags.end();
    if (secret && option.value != option.default_value) option.value = kMaskedValue;
    options.push_back(std::move(option));
  }
  return options;
}

}  // namespace tlm
