// Lines from a stream that may hold anything.
#ifndef TLM_CLIENT_CLI_BASE_LINE_READER_H_
#define TLM_CLIENT_CLI_BASE_LINE_READER_H_

#include <cstddef>
#include <istream>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace tlm::cli {

// The next line without its end (a line feed, or carriage return and line feed); none at the end of
// the stream. INVALID_ARGUMENT for a line that is not valid UTF-8 or longer than `max_bytes`; it is
// read to its end, so that the next call returns the line after it.
absl::StatusOr<std::optional<std::string>> ReadLine(std::istream* in, size_t max_bytes);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_LINE_READER_H_
