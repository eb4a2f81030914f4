#include "client/cpp/call_end.h"

#include "client/cpp/status.h"

namespace tlm::client {
namespace {

// Made up by gRPC in this process, where a message of a server would have been expected.
bool IsBrokenStream(const absl::Status& status, absl::string_view words) {
  const ErrorDetails details = DetailsOf(status);
  return details.domain.empty() && details.reason.empty() &&
         status.message().find(words) != absl::string_view::npos;
}

}  // namespace

CallEnd ClassifyEnd(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kCancelled:
      return CallEnd::kLost;
    case absl::StatusCode::kUnknown:
      return IsBrokenStream(status, "Stream removed") ? CallEnd::kLost : CallEnd::kFinal;
    case absl::StatusCode::kInternal:
      return IsBrokenStream(status, "RST_STREAM") ? CallEnd::kLost : CallEnd::kFinal;
    case absl::StatusCode::kResourceExhausted:
      return DetailsOf(status).retry_delay ? CallEnd::kOverloaded : CallEnd::kFinal;
    case absl::StatusCode::kFailedPrecondition:
      return CallEnd::kOtherModel;
    case absl::StatusCode::kAlreadyExists:
      return CallEnd::kIdInUse;
    default:
      return CallEnd::kFinal;
  }
}

}  // namespace tlm::client
