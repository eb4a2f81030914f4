// The flags of every command that talks to a server.
#ifndef TLM_CLIENT_CLI_BASE_CONNECTION_FLAGS_H_
#define TLM_CLIENT_CLI_BASE_CONNECTION_FLAGS_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cli/base/console.h"
#include "client/cpp/channel.h"

namespace tlm::cli {

std::span<const std::string_view> ConnectionFlagNames();

// A list of targets, taken apart at its commas.
std::vector<std::string> SplitTargets(const std::string& list);
// --target, taken apart.
std::vector<std::string> TargetsFromFlags();
// The flags about TLS, and the API key of --api_key_file or else of the environment's TLM_API_KEY
// (none if that is empty). Errors as CheckTlsFiles; these, and what goes to Console::err, as
// ReadApiKeyFile.
absl::StatusOr<client::ClientOptions> ClientOptionsFromFlags(Console* console);
// Whether the flags ask for an encrypted connection.
bool TlsFromFlags();
// --timeout; infinite if not given.
absl::Duration TimeoutFromFlags();

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_CONNECTION_FLAGS_H_
