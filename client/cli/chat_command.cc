#include "client/cli/chat_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "client/cli/base/table.h"
#include "client/cli/base/text.h"

namespace tlm::cli {
namespace {

struct SlashCommand {
  std::string_view name;
  std::string_view argument;  // empty: takes none
  ChatLine::Kind kind;
  std::string_view summary;
};

constexpr SlashCommand kSlashCommands[] = {
    {"/reset", "", ChatLine::Kind::kReset, "begin a new conversation; the system message stays"},
    {"/system", "TEXT", ChatLine::Kind::kSystem, "set the system message; without TEXT, none"},
    {"/history", "", ChatLine::Kind::kHistory, "what was said so far"},
    {"/seed", "N", ChatLine::Kind::kSeed, "the seed of every answer; without N, a new one each"},
    {"/help", "", ChatLine::Kind::kHelp, "this list"},
    {"/quit", "", ChatLine::Kind::kQuit, "leave, as Ctrl-D does"},
};

absl::Status SetSeed(const std::string& text, ChatLine* line) {
  if (text.empty()) return absl::OkStatus();
  uint64_t seed = 0;
  if (!absl::SimpleAtoi(text, &seed)) {
    return absl::InvalidArgumentError(
        fmt::format("/seed takes a number from 0 to {}, not {}", UINT64_MAX, Quoted(text)));
  }
  line->seed = seed;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ChatLine> ParseChatLine(const std::string& line) {
  ChatLine result;
  if (!line.starts_with('/') || line.starts_with("//")) {
    result.text = line.starts_with('/') ? line.substr(1) : line;
    return result;
  }
  const std::string_view name = std::string_view(line).substr(0, line.find_first_of(" \t"));
  const std::string argument(absl::StripAsciiWhitespace(line.substr(name.size())));
  const auto command =
      std::find_if(std::begin(kSlashCommands), std::end(kSlashCommands),
                   [name](const SlashCommand& candidate) { return candidate.name == name; });
  if (command == std::end(kSlashCommands)) {
    return absl::InvalidArgumentError(
        fmt::format("no command {}; /help lists them, and // begins a message with a slash",
                    Shortened(Quoted(name), 40)));
  }
  if (command->argument.empty() && !argument.empty()) {
    return absl::InvalidArgumentError(fmt::format("{} takes nothing after it", name));
  }
  result.kind = command->kind;
  if (result.kind == ChatLine::Kind::kSystem) result.text = argument;
  if (result.kind == ChatLine::Kind::kSeed) {
    if (absl::Status status = SetSeed(argument, &result); !status.ok()) return status;
  }
  return result;
}

void PrintChatHelp(std::ostream& out) {
  Table table({Align::kLeft, Align::kLeft});
  for (const SlashCommand& command : kSlashCommands) {
    table.AddRow(
        {fmt::format("{} {}", command.name, command.argument), std::string(command.summary)});
  }
  table.AddRow({"//...", "a message that begins with a slash"});
  table.AddRow({"Ctrl-C", "stop the answer, keeping what was said; a second one leaves"});
  table.Print(out);
  out.flush();
}

}  // namespace tlm::cli
