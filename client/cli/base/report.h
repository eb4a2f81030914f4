// Reports errors on standard error, and prints messages as JSON.
#ifndef TLM_CLIENT_CLI_BASE_REPORT_H_
#define TLM_CLIENT_CLI_BASE_REPORT_H_

#include <google/protobuf/message.h>

#include <ostream>
#include <string>
#include <string_view>
#include <utility>

#include "absl/flags/declare.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cli/base/console.h"
#include "client/cpp/client.h"
#include "model/base/errors.h"

ABSL_DECLARE_FLAG(bool, json);

namespace tlm::cli {

// Prints "tlm: generate: INVALID_ARGUMENT: ...", the server's details, and a hint for failed TLS
// handshakes and timeouts, of which gRPC names only a symptom. Returns kFailure.
int ReportError(std::string_view command, const absl::Status& status, Console* console);

// Marks the error of a value or a status: the command line is wrong.
absl::Status AsUsage(absl::Status status);
template <typename T>
absl::StatusOr<T> AsUsage(absl::StatusOr<T> value) {
  if (value.ok()) return value;
  return AsUsage(value.status());
}

template <typename... Args>
absl::Status UsageError(fmt::format_string<Args...> format, Args&&... args) {
  return AsUsage(InvalidArgument(format, std::forward<Args>(args)...));
}

// Reports how a command failed: a wrong command line, a signal, or another error. Returns the exit
// code.
int ReportFailure(std::string_view command, const absl::Status& status, Console* console);

// Prints "tlm: generate: no flag --x ...". Returns kUsageError. `command` may be empty.
int ReportUsage(std::string_view command, std::string_view message, Console* console);

// Prints a line if the stream was continued on another replica: "tlm: generate: lost the server,
// went on with host:port".
void ReportResumes(std::string_view command, const client::Client& client,
                   const client::GenerateStream& stream, Console* console);

// Returns the status's message as a standard string.
std::string StatusMessage(const absl::Status& status);

// Prints the message as one line of JSON, with field names as in the proto files, and with
// defaults.
void PrintJson(const google::protobuf::Message& message, std::ostream& out);

// Prints the message to Console::out if --json asks for it; returns whether it does.
bool PrintedAsJson(const google::protobuf::Message& message, Console* console);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_REPORT_H_
