#include "server/config/command_line.h"

#include <fmt/format.h>
#include <syslog.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <utility>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/parse.h"
#include "absl/flags/reflection.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/ascii.h"
#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/base/program/flag_errors.h"
#include "model/base/program/man_page.h"
#include "model/base/regular_file.h"
#include "server/config/flag_types.h"
#include "server/serving/build_info.h"

namespace tlm {
namespace {

constexpr char kProgram[] = "tlm-server";
constexpr std::string_view kSummary = "serves a transformer language model over gRPC";
constexpr std::string_view kUsage =
    "  tlm-server MODEL [--port=50051] [--flagfile=FILE] ...\n"
    "  tlm-server --preset=NAME --random_weights=SEED ...\n"
    "  tlm-server\n\n"
    "MODEL is the value of --model, a directory or a GGUF file. Without any argument the server\n"
    "takes the bundled model. FILE holds one flag a line. SIGTERM or SIGINT finishes what runs\n"
    "and ends the server with status 0; a second one ends it at once. Other statuses: 1 the\n"
    "server could not start, 2 the command line is wrong, 3 the engine did not stop when it was\n"
    "to end, 4 as 1 or 2, but the line that says why is in the system's log, as standard error\n"
    "could not be written.";

// Returns the server's flags, by name; Abseil's own flags are left out.
std::vector<const absl::CommandLineFlag*> OwnFlags() {
  std::vector<const absl::CommandLineFlag*> flags;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (flag->Filename() == kProgram) flags.push_back(flag);
  }
  std::sort(flags.begin(), flags.end(),
            [](const auto* a, const auto* b) { return a->Name() < b->Name(); });
  return flags;
}

// Abseil ends the process with status 1 both for wrong flags and for the help. Scripts cannot
// distinguish that from a server that failed to start, and Abseil's messages name neither the
// program nor the value that a flag takes. So its output is collected and rewritten when it ends
// the process.
class AbseilOutput {
 public:
  void Collect() {
    out_buffer_ = std::cout.rdbuf(out_.rdbuf());
    err_buffer_ = std::cerr.rdbuf(err_.rdbuf());
  }
  void Release() {
    if (out_buffer_ == nullptr) return;
    std::cout.rdbuf(std::exchange(out_buffer_, nullptr));
    std::cerr.rdbuf(err_buffer_);
  }
  bool collecting() const { return out_buffer_ != nullptr; }
  std::string out() const { return out_.str(); }
  std::string err() const { return err_.str(); }

 private:
  std::ostringstream out_;
  std::ostringstream err_;
  std::streambuf* out_buffer_ = nullptr;  // not null: collecting
  std::streambuf* err_buffer_ = nullptr;
};

AbseilOutput& Output() {
  static AbseilOutput& output = *new AbseilOutput;  // still needed while the process exits
  return output;
}

bool help_asked = false;
std::set<std::string> one_dash;  // names that the command line writes as -name

std::string UnknownFlag(const std::string& name) {
  std::vector<std::string_view> names;
  for (const absl::CommandLineFlag* flag : OwnFlags()) {
    names.emplace_back(flag->Name().data(), flag->Name().size());
  }
  const std::string nearest = DidYouMean(name, names, "--");
  return fmt::format("no flag {}{}", Quoted((one_dash.contains(name) ? "-" : "--") + name),
                     nearest.empty() ? "; --help lists them" : nearest);
}

// Returns the part of `text` after `begin`, with which it must begin, up to the last `end`.
std::optional<std::string> Between(std::string_view text, std::string_view begin,
                                   std::string_view end) {
  const size_t last = text.rfind(end);
  if (!text.starts_with(begin) || last == text.npos || last < begin.size()) return std::nullopt;
  return std::string(text.substr(begin.size(), last - begin.size()));
}

// Rewrites one of Abseil's messages in this project's words.
std::string Reworded(const std::string& message) {
  constexpr std::string_view kMiddle = "' specified for flag '";
  if (const auto name = Between(message, "Unknown command line flag '", "'")) {
    return UnknownFlag(*name);
  }
  if (const auto name = Between(message, "Missing the value for the flag '", "'")) {
    return fmt::format("--{} needs a value", *name);
  }
  const auto value = Between(message, "Illegal value '", kMiddle);
  if (!value) return message;
  const size_t name = message.rfind(kMiddle) + kMiddle.size();
  const absl::CommandLineFlag* flag =
      absl::FindCommandLineFlag(message.substr(name, message.find('\'', name) - name));
  return flag == nullptr ? message : BadFlagValue(*flag, *value, message);
}

// Prints one line per error. Returns the exit status.
int PrintErrors(std::string_view errors) {
  int exit_status = kExitUsage;
  constexpr std::string_view kMark = "ERROR: ";
  bool needs_value = false;
  while (!errors.empty()) {
    if (errors.starts_with(kMark)) errors.remove_prefix(kMark.size());
    const size_t end = errors.find("\nERROR: ");
    std::string message(errors.substr(0, end));
    errors.remove_prefix(end == errors.npos ? errors.size() : end + 1);
    if (message.ends_with('\n')) message.pop_back();
    // After "Missing the value" Abseil also complains of the empty value.
    if (needs_value && message.starts_with("Illegal value '' ")) continue;
    needs_value = message.starts_with("Missing the value");
    exit_status = ReportFailure(Reworded(message), exit_status);
  }
  return exit_status;
}

void ExitWithUsageStatus() {
  if (!Output().collecting()) return;
  Output().Release();
  // A flag that is unset by default has no default to show.
  static const std::regex no_default(";\\s+default: ;");
  std::cout << std::regex_replace(Output().out(), no_default, "") << std::flush;
  std::fflush(stdout);
  const int exit_status = PrintErrors(Output().err());
  std::_Exit(help_asked ? EXIT_SUCCESS : exit_status);
}

void ConfigureHelp() {
  absl::SetProgramUsageMessage(
      fmt::format("{}.\n\n{}\n--helpman prints the manual page.", kSummary, kUsage));
  absl::FlagsUsageConfig config;
  // Abseil shows the flags of a source file under its name; the server's are shown under the
  // program's.
  config.normalize_filename = [](absl::string_view file) {
    const bool ours = file.find("server/config/options.cc") != absl::string_view::npos ||
                      file.find("server/config/service_options.cc") != absl::string_view::npos;
    return std::string(ours ? kProgram : file);
  };
  const auto ours = [](absl::string_view file) { return file == kProgram; };
  config.contains_helpshort_flags = ours;
  config.contains_help_flags = ours;
  config.contains_helppackage_flags = ours;
  config.version_string = [] {
    return fmt::format("tlm-server {} (build {})\n", TLM_VERSION,
                       ReadBuildId().value_or("unknown"));
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

void AddFlag(const absl::CommandLineFlag& flag, ManPage* page) {
  const std::string value = flag.DefaultValue();
  const std::string told = value.empty() ? "" : fmt::format(" Default: {}.", value);
  page->Item("--" + std::string(flag.Name()), flag.IsOfType<bool>() ? "" : "VALUE",
             flag.Help() + '.' + told);
}

// Builds the command line that Abseil reads. Abseil itself would open a flagfile of any kind, and
// wait for the writer of a pipe.
class Arguments {
 public:
  absl::Status Add(std::span<char* const> arguments) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      const std::string_view argument = arguments[i];
      if (argument == "--") {
        list_.insert(list_.end(), arguments.begin() + i, arguments.end());
        return absl::OkStatus();
      }
      if (argument == "--flagfile" || argument == "-flagfile") {
        if (++i == arguments.size()) return InvalidArgument("--flagfile needs a value");
        TLM_RETURN_IF_ERROR(AddFiles(arguments[i]));
      } else {
        TLM_RETURN_IF_ERROR(AddFlag(argument));
      }
    }
    return absl::OkStatus();
  }
  const std::vector<std::string>& list() const { return list_; }

 private:
  static constexpr int kMaxFiles = 64;
  static constexpr size_t kMaxBytes = size_t{1} << 20;

  absl::Status AddFlag(std::string_view argument) {
    for (const std::string_view file : {"--flagfile=", "-flagfile="}) {
      if (argument.starts_with(file)) return AddFiles(argument.substr(file.size()));
    }
    list_.push_back(argument == "-h" ? "--help" : Switched(argument));
    return absl::OkStatus();
  }

  absl::Status AddFiles(std::string_view names) {
    while (!names.empty()) {
      const size_t comma = std::min(names.find(','), names.size());
      TLM_RETURN_IF_ERROR(AddFile(std::string(names.substr(0, comma))));
      names.remove_prefix(std::min(comma + 1, names.size()));
    }
    return absl::OkStatus();
  }

  absl::Status AddFile(const std::string& path) {
    if (++files_ > kMaxFiles) {
      return InvalidArgument(
          "--flagfile: {} is one of more than {} files: it names itself, perhaps", path, kMaxFiles);
    }
    const absl::StatusOr<std::string> text = ReadFile(path, kMaxBytes);
    if (!text.ok()) return WithContext(text.status(), "--flagfile");
    std::istringstream lines(*text);
    std::string line;
    for (int number = 1; std::getline(lines, line); ++number) {
      const absl::string_view flag = absl::StripAsciiWhitespace(line);
      if (flag.empty() || flag[0] == '#') continue;
      TLM_RETURN_IF_ERROR(WithContext(CheckLine({flag.data(), flag.size()}),
                                      fmt::format("--flagfile: {}, line {}", path, number)));
      TLM_RETURN_IF_ERROR(AddFlag({flag.data(), flag.size()}));
    }
    return absl::OkStatus();
  }

  static absl::Status CheckLine(std::string_view line) {
    if (!line.starts_with('-')) {
      return InvalidArgument("{} is not a flag, which is written --name=value", Quoted(line));
    }
    const absl::CommandLineFlag* const flag = FlagNamed(line);
    if (flag != nullptr && !flag->IsOfType<bool>() && !flag->IsOfType<AutoSwitch>()) {
      return InvalidArgument("--{} needs a value", std::string(flag->Name()));
    }
    return absl::OkStatus();
  }

  // Returns the flag of "--name"; null for "--name=value".
  static const absl::CommandLineFlag* FlagNamed(std::string_view argument) {
    argument.remove_prefix(std::min(argument.find_first_not_of('-'), argument.size()));
    return absl::FindCommandLineFlag(absl::string_view(argument.data(), argument.size()));
  }

  // Abseil accepts --name and --noname only for bool flags.
  static std::string Switched(std::string_view argument) {
    const absl::CommandLineFlag* flag = FlagNamed(argument);
    if (flag != nullptr && flag->IsOfType<AutoSwitch>()) return fmt::format("{}=true", argument);
    const size_t no = argument.find("-no") + 3;
    if (argument.starts_with('-') && no >= 3 && no < argument.size()) {
      flag = FlagNamed(argument.substr(no));
      if (flag != nullptr && flag->IsOfType<AutoSwitch>()) {
        return fmt::format("--{}=false", argument.substr(no));
      }
    }
    return std::string(argument);
  }

  std::vector<std::string> list_;
  int files_ = 0;
};

}  // namespace

int ReportFailure(std::string_view message, int exit_status) {
  std::string line(message);
  std::replace(line.begin(), line.end(), '\n', ' ');
  line = OneLine(line);
  if (std::fprintf(stderr, "%s: %s\n", kProgram, line.c_str()) >= 0) return exit_status;
  syslog(LOG_DAEMON | LOG_ERR, "%s", line.c_str());
  return kExitUnheard;
}

std::string ServerManPage() {
  ConfigureHelpOnce();
  ManPage page({kProgram, 8, ManPageDate(), "tlm " TLM_VERSION});
  page.Section("NAME");
  page.Text(fmt::format("{} - {}", kProgram, kSummary));
  page.Section("SYNOPSIS");
  page.Synopsis(kProgram, "[MODEL] [FLAGS]");
  page.Section("DESCRIPTION");
  page.Text(kUsage);
  page.Section("FLAGS");
  page.Text("Switches are written --name or --noname.");
  for (const absl::CommandLineFlag* flag : OwnFlags()) AddFlag(*flag, &page);
  page.Section("SEE ALSO");
  page.Text("tlm(1)");
  return page.text();
}

absl::StatusOr<std::vector<std::string>> ParseFlags(int argc, char** argv) {
  ConfigureHelpOnce();
  Arguments arguments;
  TLM_RETURN_IF_ERROR(arguments.Add(std::span(argv, static_cast<size_t>(argc))));
  std::vector<std::string> list = arguments.list();
  std::vector<char*> pointers;
  for (std::string& argument : list) {
    pointers.push_back(argument.data());
    if (argument.starts_with('-') && !argument.starts_with("--")) {
      one_dash.insert(argument.substr(1, argument.find('=') - 1));
    }
    if (argument == "--helpman" || argument == "-helpman") {
      std::cout << ServerManPage() << std::flush;
      std::exit(EXIT_SUCCESS);
    }
    if (argument.starts_with("--help") || argument.starts_with("-help")) help_asked = true;
    if (argument == "--version" || argument == "-version") help_asked = true;
  }
  Output().Collect();
  const std::vector<char*> positional =
      absl::ParseCommandLine(static_cast<int>(pointers.size()), pointers.data());
  Output().Release();
  return std::vector<std::string>(positional.begin() + 1, positional.end());
}

std::vector<ConfigOption> FlagValues(std::span<const std::string_view> secret_flags) {
  std::vector<ConfigOption> options;
  // The values of these flags include those from a --flagfile.
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
