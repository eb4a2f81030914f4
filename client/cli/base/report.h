// Errors as lines, messages as JSON.
#ifndef TLM_CLIENT_CLI_BASE_REPORT_H_
#define TLM_CLIENT_CLI_BASE_REPORT_H_

#include <google/protobuf/message.h>

#include <ostream>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "client/cli/base/console.h"
#include "client/cpp/client.h"

namespace tlm::cli {

// "tlm: generate: INVALID_ARGUMENT: ...", below it what the server said in detail, and a hint
// where gRPC names only a symptom: of a TLS handshake that failed, or of --timeout. Returns
// kFailure.
int ReportError(std::string_view command, const absl::Status& status, Console* console);

// "tlm: generate: no flag --x ...". Returns kUsageError. `command` may be empty.
int ReportUsage(std::string_view command, std::string_view message, Console* console);

// One line if the stream was continued elsewhere: "tlm: generate: lost the server, went on with
// host:port".
void ReportResumes(std::string_view command, const client::Client& client,
                   const client::GenerateStream& stream, Console* console);

// The status's message as a standard string.
std::string StatusMessage(const absl::Status& status);

// The message as one line of JSON, field names as in the proto files, defaults included.
void PrintJson(const google::protobuf::Message& message, std::ostream& out);

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BASE_REPORT_H_
