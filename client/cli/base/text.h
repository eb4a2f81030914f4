// Text as it may be sent to a server or shown on a terminal.
#ifndef TLM_CLIENT_CLI_BASE_TEXT_H_
#define TLM_CLIENT_CLI_BASE_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <istream>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tlm::cli {

// Offset of the first byte that is not part of valid UTF-8; none when all of it is.
std::optional<size_t> FindInvalidUtf8(std::string_view text);

// `text` with control characters other than line break and tab shown as \xNN, so that text from
// elsewhere cannot drive the terminal.
std::string Printable(std::string_view text);

// Bytes of a token in quotes, everything that is not printable text escaped: "\n", "\xe2\x80".
std::string Quoted(std::string_view bytes);

// Columns a terminal needs for `text`, which is valid UTF-8.
size_t DisplayWidth(std::string_view text);

// `text` if `max_columns` hold it (at least 3); else as much of its beginning as fits before "...".
std::string Shortened(std::string_view text, size_t max_columns);

// INVALID_ARGUMENT, naming offset and byte, unless `text` is valid UTF-8.
absl::Status CheckUtf8(std::string_view text);

// The argument itself, or for "-" what standard input holds. INVALID_ARGUMENT when it is not valid
// UTF-8 (naming the offset) or larger than gRPC's default message limit.
absl::StatusOr<std::string> ReadText(const std::string& argument, std::istream* in);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_TEXT_H_
