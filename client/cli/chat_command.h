// The lines of a conversation that are for the program, not for the model.
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

// A line that begins with a slash is a command; with two, a message that begins with one.
// INVALID_ARGUMENT when there is no such command, or it does not take what follows it.
absl::StatusOr<ChatLine> ParseChatLine(const std::string& line);

// What the commands do.
void PrintChatHelp(std::ostream& out);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_CHAT_COMMAND_H_
