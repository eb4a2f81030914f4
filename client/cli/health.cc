#include <optional>
#include <string>

#include "absl/flags/flag.h"
#include "client/cli/base/command.h"
#include "client/cli/base/connection.h"
#include "client/cli/base/flag_types.h"
#include "client/cli/base/report.h"
#include "model/base/errors.h"

ABSL_FLAG(std::string, service, "", "full name of a service; empty is the server as a whole");
ABSL_FLAG(std::optional<tlm::cli::TimeSpan>, wait, std::nullopt,
          "how long to wait for the server to be ready, in seconds or as 1m30s");

namespace tlm::cli {
namespace {

// The timeout without --timeout: a health check that hangs has failed.
constexpr absl::Duration kCheckTimeout = absl::Seconds(5);

absl::StatusOr<int> RunHealth(const Arguments& /*arguments*/, Console* console) {
  using grpc::health::v1::HealthCheckResponse;
  TLM_ASSIGN_OR_RETURN(const auto session, Session::Open(console));
  const std::string service = absl::GetFlag(FLAGS_service);
  client::CallOptions options = session->call_options();
  if (const std::optional<TimeSpan> wait = absl::GetFlag(FLAGS_wait)) {
    client::CallOptions wait_options = options;
    wait_options.timeout = wait->duration;
    TLM_RETURN_IF_ERROR(session->client().WaitUntilServing(service, wait_options));
  }
  if (options.timeout == absl::InfiniteDuration()) options.timeout = kCheckTimeout;
  TLM_ASSIGN_OR_RETURN(const auto status, session->client().Health(service, options));
  HealthCheckResponse response;
  response.set_status(status);
  if (!PrintedAsJson(response, console)) {
    console->out << HealthCheckResponse::ServingStatus_Name(status) << '\n';
  }
  return status == HealthCheckResponse::SERVING ? kSuccess : kFailure;
}

}  // namespace

Command HealthCommand() {
  return {
      .name = "health",
      .summary = "check whether the server is ready: exit code 0 if it is",
      .details =
          R"(The exit code is 0 for SERVING, 1 for everything else that a server may say and when none
answers within --timeout, 2 for wrong usage: as a container's HEALTHCHECK wants it. With TLS
it is a whole handshake, the server's certificate verified. No API key is needed.

  tlm health --wait=1m
  HEALTHCHECK CMD ["tlm", "health", "--ca_file=/etc/tlm/ca.pem", "--server_name=tlm"])",
      .flags = "service wait json",
      .connects = true,
      .run = RunHealth,
      .flag_help = {{"timeout", "how long the answer may take; 5s if not given"}}};
}

}  // namespace tlm::cli
