// Reading small files whole.
#ifndef TLM_CLIENT_CLI_BASE_TEXT_FILE_H_
#define TLM_CLIENT_CLI_BASE_TEXT_FILE_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace tlm::cli {

// All of a file, or of a pipe. NOT_FOUND when it cannot be read, INVALID_ARGUMENT when it holds
// more than `max_bytes`; the message names the file.
absl::StatusOr<std::string> ReadTextFile(const std::string& path, size_t max_bytes);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_TEXT_FILE_H_
