// The slash commands of a conversation.
#ifndef TLM_CLIENT_CLI_CHAT_COMMAND_H_
#define TLM_CLIENT_CLI_CHAT_COMMAND_H_

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>

#include "absl/status/statusor.h"

namespace tlm::cli {

struct ChatLine {
  enum class Kind { kMessage, kReset, kSystem, kHistory, kSeed, kHelp, kQuit };
  Kind kind = Kind::kMessage;
  std::string text;              // of kMessage and kSystem
  std::optional<uint64_t> seed;  // of kSeed; none = a new one for each answer
};

// A line that starts with a slash is a command; "//" starts a message with a slash.
// INVALID_ARGUMENT for an unknown command or a wrong argument.
absl::StatusOr<ChatLine> ParseChatLine(const std::string& line);

// Lists the commands.
void PrintChatHelp(std::ostream& out);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_CHAT_COMMAND_H_
