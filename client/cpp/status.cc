#include "client/cpp/status.h"

#include <algorithm>

#include "absl/strings/cord.h"
#include "absl/types/optional.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace tlm::client {
namespace {

constexpr char kDetailsUrl[] = "type.googleapis.com/google.rpc.Status";

void AddViolations(const google::rpc::BadRequest& bad_request, ErrorDetails* details) {
  for (const auto& violation : bad_request.field_violations()) {
    details->violations.push_back({violation.field(), violation.description()});
  }
}

void AddErrorInfo(const google::rpc::ErrorInfo& info, ErrorDetails* details) {
  details->reason = info.reason();
  details->domain = info.domain();
  details->metadata.insert(info.metadata().begin(), info.metadata().end());
}

void AddRetryInfo(const google::rpc::RetryInfo& info, ErrorDetails* details) {
  if (!info.has_retry_delay()) return;
  const absl::Duration delay =
      absl::Seconds(info.retry_delay().seconds()) + absl::Nanoseconds(info.retry_delay().nanos());
  details->retry_delay = std::max(delay, absl::ZeroDuration());
}

}  // namespace

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  if (!status.error_details().empty()) {
    result.SetPayload(kDetailsUrl, absl::Cord(status.error_details()));
  }
  return result;
}

ErrorDetails DetailsOf(const absl::Status& status) {
  ErrorDetails details;
  const absl::optional<absl::Cord> payload = status.GetPayload(kDetailsUrl);
  google::rpc::Status message;
  if (!payload || !message.ParseFromString(std::string(*payload))) return details;
  for (const auto& any : message.details()) {
    google::rpc::BadRequest bad_request;
    google::rpc::ErrorInfo error_info;
    google::rpc::RetryInfo retry_info;
    if (any.UnpackTo(&bad_request)) AddViolations(bad_request, &details);
    if (any.UnpackTo(&error_info)) AddErrorInfo(error_info, &details);
    if (any.UnpackTo(&retry_info)) AddRetryInfo(retry_info, &details);
  }
  return details;
}

std::string CodeName(absl::StatusCode code) { return absl::StatusCodeToString(code); }

}  // namespace tlm::client
