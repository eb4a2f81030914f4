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

// Connects by the flags. Returns the errors of ClientOptionsFromFlags and Client::Connect.
absl::StatusOr<std::unique_ptr<client::Client>> ConnectFromFlags(Console* console);

// Read standard input before creating one: while it exists, Ctrl-C cancels calls, not reads.
class Session {
 public:
  // Returns the errors of ConnectFromFlags.
  static absl::StatusOr<std::unique_ptr<Session>> Open(std::string_view command, Console* console);

  client::Client& client() { return *client_; }

  // Returns options for --timeout and Ctrl-C.
  client::CallOptions call_options();

  // Returns the exit code for the status of a call: 0 for OK, the signal's if Ctrl-C cancelled it,
  // otherwise 1 after reporting the error.
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
