// A command's connection to the server.
#ifndef TLM_CLIENT_CLI_BASE_SESSION_H_
#define TLM_CLIENT_CLI_BASE_SESSION_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "client/cli/base/console.h"
#include "client/cli/base/interrupt.h"
#include "client/cpp/client.h"

namespace tlm::cli {

// Connects as the flags say; errors as Client::Connect.
absl::StatusOr<std::unique_ptr<client::Client>> ConnectFromFlags(Console* console);

// Standard input must have been read before: Ctrl-C ends calls, not reads, while this lives.
class Session {
 public:
  // Errors as ConnectFromFlags.
  static absl::StatusOr<std::unique_ptr<Session>> Open(std::string_view command, Console* console);

  client::Client& client() { return *client_; }

  // --timeout and Ctrl-C.
  client::CallOptions call_options();

  // The exit code for how a call ended: 0 if it did well, that of the signal if Ctrl-C ended it,
  // else 1 after a report.
  int Finish(const absl::Status& status);

 private:
  Session(std::string_view command, Console* console) : command_(command), console_(console) {}

  const std::string command_;
  Console* const console_;
  Interrupt interrupt_;
  std::unique_ptr<client::Client> client_;
};

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_SESSION_H_
