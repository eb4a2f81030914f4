#include "client/cli/base/report.h"

#include <fmt/format.h>
#include <google/protobuf/util/json_util.h>

#include "absl/flags/flag.h"
#include "client/cli/base/connection.h"
#include "client/cli/base/interrupt.h"
#include "client/cli/base/text.h"
#include "client/cpp/status.h"

ABSL_FLAG(bool, json, false,
          "print the server's messages as JSON, one per line; 64-bit numbers are strings, as in "
          "protobuf's JSON");

namespace tlm::cli {
namespace {

constexpr char kUsageMark[] = "tlm/wrong_usage";

// Symptoms of a failed connection in gRPC's message, and their probable causes.
struct ConnectionHint {
  bool tls;  // the flags ask for TLS
  const char* symptom;
  const char* hint;
};
constexpr char kMayExpectTls[] = "the server may expect TLS: see --tls and --ca_file";
constexpr char kMayWantCertificate[] =
    "the server may require a client certificate, --client_cert and --client_key, or not accept "
    "the one given";
constexpr ConnectionHint kConnectionHints[] = {
    {false, "Socket closed", kMayExpectTls},
    {false, "Connection reset by peer", kMayExpectTls},
    {true, "wrong version number",
     "the server may not speak TLS: leave out --tls, --ca_file, --client_cert, --client_key"},
    {true, "is not in peer certificate",
     "the server's certificate has another name: connect to that name, or give it as "
     "--server_name"},
    {true, "certificate verify failed",
     "the server's certificate is expired, or of an authority that is not trusted here: give the "
     "authority's certificate as --ca_file"},
    {true, "Socket closed", kMayWantCertificate},
    {true, "Connection reset by peer", kMayWantCertificate},
};

// Returns the probable cause of an error if gRPC's message names only a symptom; empty if unknown.
std::string HintOf(const absl::Status& status) {
  const std::string message = StatusMessage(status);
  // A server's own message about the deadline is longer.
  if (absl::IsDeadlineExceeded(status) && message == "Deadline Exceeded") {
    const absl::Duration timeout = TimeoutFromFlags();
    return "the time limit of this program ended the call" +
           (timeout < absl::InfiniteDuration() ? ": --timeout=" + absl::FormatDuration(timeout)
                                               : std::string("; --timeout sets it"));
  }
  // The hint is not for a connection that broke later: the message of a stream that was lost and
  // not continued begins otherwise.
  if (!absl::IsUnavailable(status) || !message.starts_with("failed to connect")) return "";
  for (const auto& [tls, symptom, hint] : kConnectionHints) {
    if (tls == TlsFromFlags() && message.find(symptom) != message.npos) return hint;
  }
  return "";
}

}  // namespace

int ReportError(std::string_view command, const absl::Status& status, Console* console) {
  const client::ErrorDetails details = client::DetailsOf(status);
  std::ostream& err = console->err;
  err << fmt::format("tlm: {}: {}: {}", command, client::CodeName(status.code()),
                     OneLine(StatusMessage(status)));
  if (!details.reason.empty()) err << fmt::format(" ({})", OneLine(details.reason));
  err << '\n';
  for (const client::FieldViolation& violation : details.violations) {
    // Often the message repeats the only violation.
    if (StatusMessage(status).find(violation.description) != std::string::npos) continue;
    err << fmt::format("  {}: {}\n", OneLine(violation.field), OneLine(violation.description));
  }
  if (details.retry_delay) {
    err << fmt::format("  try again in {}\n", absl::FormatDuration(*details.retry_delay));
  }
  if (const std::string hint = HintOf(status); !hint.empty()) {
    err << fmt::format("  {}\n", hint);
  }
  err.flush();
  return kFailure;
}

absl::Status AsUsage(absl::Status status) {
  if (!status.ok()) status.SetPayload(kUsageMark, absl::Cord());
  return status;
}

int ReportFailure(std::string_view command, const absl::Status& status, Console* console) {
  if (status.GetPayload(kUsageMark)) return ReportUsage(command, StatusMessage(status), console);
  if (Interrupt::exit_code() == 0 || !absl::IsCancelled(status)) {
    return ReportError(command, status, console);
  }
  console->err << fmt::format("tlm: {}: interrupted\n", command) << std::flush;
  return Interrupt::exit_code();
}

int ReportUsage(std::string_view command, std::string_view message, Console* console) {
  console->err << "tlm: ";
  if (!command.empty()) console->err << command << ": ";
  console->err << OneLine(message) << std::endl;
  return kUsageError;
}

void ReportResumes(std::string_view command, const client::Client& client,
                   const client::GenerateStream& stream, Console* console) {
  if (stream.resumes() == 0) return;
  const std::string times = stream.resumes() == 1 ? "" : fmt::format(" {} times", stream.resumes());
  console->err << fmt::format("tlm: {}: lost the server{}, went on with {}", command, times,
                              client.targets()[stream.target()])
               << std::endl;
}

std::string StatusMessage(const absl::Status& status) { return std::string(status.message()); }

void PrintJson(const google::protobuf::Message& message, std::ostream& out) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string json;
  // Fails only for Any messages of unknown type, which no response of tlm.v1 contains.
  const auto status = google::protobuf::util::MessageToJsonString(message, &json, options);
  if (!status.ok()) json = "{}";
  out << json << std::endl;
}

bool PrintedAsJson(const google::protobuf::Message& message, Console* console) {
  const bool asked = absl::GetFlag(FLAGS_json);
  if (asked) PrintJson(message, console->out);
  return asked;
}

}  // namespace tlm::cli
