// The flags of every command that talks to a server, and the credentials that they name.
#ifndef TLM_CLIENT_CLI_BASE_CONNECTION_H_
#define TLM_CLIENT_CLI_BASE_CONNECTION_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cli/base/console.h"
#include "client/cli/base/interrupt.h"
#include "client/cpp/client.h"

namespace tlm::cli {

// Checks the TLS files, because gRPC reports their errors only on connecting and with less detail.
// INVALID_ARGUMENT, naming the file, for a file without certificate or private key in PEM, for an
// expired client certificate and for a key of another certificate. Skips unreadable files and
// pipes, which can be read only once.
absl::Status CheckTlsFiles(const client::ClientOptions& options);

inline constexpr std::string_view kConnectionFlags =
    "target timeout tls ca_file client_cert client_key server_name api_key_file";

// Splits a list of targets at its commas.
std::vector<std::string> SplitTargets(const std::string& list);
// Returns the parts of --target.
std::vector<std::string> TargetsFromFlags();
// Reads the TLS flags, and the API key from --api_key_file or else from the environment variable
// TLM_API_KEY (no key if both are empty). Returns the errors of CheckTlsFiles, ApiKeyFromText and
// ReadApiKeyFile.
absl::StatusOr<client::ClientOptions> ClientOptionsFromFlags(Console* console);
// True if the flags request an encrypted connection.
bool TlsFromFlags();
// Returns --timeout; infinite if not given.
absl::Duration TimeoutFromFlags();

// Returns the key without surrounding white space. INVALID_ARGUMENT if nothing is left, or more
// than one word. No message contains any part of the text, which is secret.
absl::StatusOr<std::string> ApiKeyFromText(std::string_view text);

// Reads the key from a file or pipe. INVALID_ARGUMENT when ApiKeyFromText returns it, and for more
// than 4 KiB; NOT_FOUND if it cannot be read. Warns on Console::err if every user of this machine
// can read or write it.
absl::StatusOr<std::string> ReadApiKeyFile(const std::string& path, Console* console);

// A command's connection to the server of the flags. Read standard input before creating one: while
// it exists, Ctrl-C cancels calls, not reads.
class Session {
 public:
  // Returns the errors of ClientOptionsFromFlags and Client::Connect.
  static absl::StatusOr<std::unique_ptr<Session>> Open(Console* console);

  client::Client& client() { return *client_; }
  const client::ClientOptions& client_options() const { return client_options_; }
  client::CancelToken* cancel() { return interrupt_.token(); }
  // Returns options for --timeout and Ctrl-C.
  client::CallOptions call_options();

 private:
  Session() = default;

  Interrupt interrupt_;
  client::ClientOptions client_options_;
  std::unique_ptr<client::Client> client_;
};

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_CONNECTION_H_
