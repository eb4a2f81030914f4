// Reads text, and makes it fit to be sent to a server or shown on a terminal.
#ifndef TLM_CLIENT_CLI_BASE_TEXT_H_
#define TLM_CLIENT_CLI_BASE_TEXT_H_

#include <cstddef>
#include <istream>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tlm::cli {

// Returns `text` with control characters except line break and tab shown as \xNN, so that untrusted
// text cannot control the terminal.
std::string Printable(std::string_view text);

// Returns the text as Printable does, with spaces instead of line breaks and tabs.
std::string OneLine(std::string_view text);

// Returns `bytes` in quotes, with everything escaped that is not printable text: "\n", "\xe2\x80".
std::string Quoted(std::string_view bytes);

// Returns the columns that a terminal needs for `text`, which must be valid UTF-8.
size_t DisplayWidth(std::string_view text);

// Returns `text` if it fits into `max_columns` (at least 3), otherwise the beginning that fits, and
// "...".
std::string Shortened(std::string_view text, size_t max_columns);

// INVALID_ARGUMENT, naming offset and byte, unless `text` is valid UTF-8.
absl::Status CheckUtf8(std::string_view text);

// Returns the argument itself; for "-", all of `in`. INVALID_ARGUMENT if it is not valid UTF-8
// (naming the offset) or larger than gRPC's default message limit.
absl::StatusOr<std::string> ReadText(const std::string& argument, std::istream* in);

// Returns the contents of a file or pipe. NOT_FOUND if it cannot be read, INVALID_ARGUMENT if it is
// longer than `max_bytes`; the message names the file.
absl::StatusOr<std::string> ReadTextFile(const std::string& path, size_t max_bytes);

// Returns the next line without its end (LF or CR LF); nullopt at the end of the stream.
// INVALID_ARGUMENT for a line that is not valid UTF-8 or longer than `max_bytes`; such a line is
// consumed, too.
absl::StatusOr<std::optional<std::string>> ReadLine(std::istream* in, size_t max_bytes);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_TEXT_H_
