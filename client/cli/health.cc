#include <optional>
#include <string>

#include "absl/flags/flag.h"
#include "client/cli/base/command.h"
#include "client/cli/base/flag_types.h"
#include "client/cli/base/report.h"
#include "client/cli/base/request_flags.h"
#include "client/cli/base/session.h"

ABSL_FLAG(std::string, service, "", "full name of a service; empty is the server as a whole");
ABSL_FLAG(std::optional<tlm::cli::TimeSpan>, wait, std::nullopt,
          "wait this long for the server to be ready, in seconds or like 1m30s");

namespace tlm::cli {
namespace {

// Without --timeout: a health check that hangs has failed.
constexpr absl::Duration kCheckTimeout = absl::Seconds(5);

}  // namespace

int RunHealth(const Arguments& arguments, Console* console) {
  if (!arguments.empty()) return ReportUsage("health", "takes no arguments", console);
  auto session = Session::Open("health", console);
  if (!session.ok()) return ReportError("health", session.status(), console);
  client::Client& client = (*session)->client();
  const std::string service = absl::GetFlag(FLAGS_service);

  client::CallOptions options = (*session)->call_options();
  if (const std::optional<TimeSpan> wait = absl::GetFlag(FLAGS_wait)) {
    client::CallOptions wait_options = options;
    wait_options.timeout = wait->duration;
    const absl::Status status = client.WaitUntilServing(service, wait_options);
    if (!status.ok()) return (*session)->Finish(status);
  }
  if (options.timeout == absl::InfiniteDuration()) options.timeout = kCheckTimeout;
  const auto status = client.Health(service, options);
  if (!status.ok()) return (*session)->Finish(status.status());
  grpc::health::v1::HealthCheckResponse response;
  response.set_status(*status);
  if (absl::GetFlag(FLAGS_json)) {
    PrintJson(response, console->out);
  } else {
    console->out << grpc::health::v1::HealthCheckResponse::ServingStatus_Name(*status) << '\n';
  }
  return *status == grpc::health::v1::HealthCheckResponse::SERVING ? kSuccess : kFailure;
}

}  // namespace tlm::cli
