#include "server/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <utility>

#include "absl/flags/parse.h"
#include "absl/flags/reflection.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "server/program_build.h"

namespace tlm {
namespace {

constexpr absl::string_view kProgram = "tlm-server";
constexpr char kUsage[] =
    "serves a transformer language model over gRPC.\n\n"
    "  tlm-server --model=DIR [--port=50051] [--flagfile=FILE] ...\n"
    "  tlm-server --preset=NAME --init=random [--seed=N] ...\n\n"
    "FILE holds one flag a line. SIGTERM or SIGINT finishes what runs and ends the server with\n"
    "status 0; a second one ends it at once. Other statuses: 1 the server could not start, 2 the\n"
    "command line is wrong.";

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
  absl::SetProgramUsageMessage(kUsage);
  absl::FlagsUsageConfig config;
  // Abseil shows the flags of a source file under its name; ours read better under the program's.
  config.normalize_filename = [](absl::string_view file) {
    const bool ours = file.find("server/options.cc") != absl::string_view::npos;
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

}  // namespace

std::vector<char*> ParseFlags(int argc, char** argv) {
  static const bool configured = [] {
    ConfigureHelp();
    return std::atexit(ExitWithUsageStatus) == 0;
  }();
  static_cast<void>(configured);
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
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
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    // Abseil's own flags are left out: what a --flagfile sets is in ours.
    if (flag->Filename() != kProgram) continue;
    ConfigOption option{std::string(name), flag->CurrentValue(), flag->DefaultValue()};
    const bool secret =
        std::find(secret_flags.begin(), secret_flags.end(), option.name) != secret_flags.end();
    if (secret && option.value != option.default_value) option.value = kMaskedValue;
    options.push_back(std::move(option));
  }
  std::sort(options.begin(), options.end(),
            [](const ConfigOption& a, const ConfigOption& b) { return a.name < b.name; });
  return options;
}

}  // namespace tlm
