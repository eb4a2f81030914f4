// The key a caller proves itself with.
#ifndef TLM_CLIENT_CLI_BASE_API_KEY_H_
#define TLM_CLIENT_CLI_BASE_API_KEY_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "client/cli/base/console.h"

namespace tlm::cli {

// The key without the white space around it: files end with a line break. INVALID_ARGUMENT when
// nothing is left, or when there is more than one word. No message holds any of the text, which is
// secret.
absl::StatusOr<std::string> ApiKeyFromText(std::string_view text);

// The key that a file, or a pipe, holds; INVALID_ARGUMENT as above, and for one over 4 KiB;
// NOT_FOUND when it cannot be read. One line to Console::err if every user of this machine can read
// or write the file.
absl::StatusOr<std::string> ReadApiKeyFile(const std::string& path, Console* console);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_API_KEY_H_
