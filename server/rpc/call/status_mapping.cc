#include "server/rpc/call/status_mapping.h"

#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "model/base/errors.h"
#include "model/base/json.h"
#include "server/rpc/convert/proto_time.h"

namespace tlm {
namespace {

constexpr char kErrorDomain[] = "tlm";

// Cuts the text without splitting a character: protobuf refuses strings that are not UTF-8.
std::string Shortened(std::string message) {
  if (message.size() <= kMaxStatusMessageBytes) return message;
  constexpr std::string_view kEllipsis = "...";
  size_t end = kMaxStatusMessageBytes - kEllipsis.size();
  while (end > 0 && (static_cast<unsigned char>(message[end]) & 0xc0) == 0x80) --end;
  return message.erase(end).append(kEllipsis);
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  // absl and gRPC number the canonical codes alike.
  const auto code = static_cast<grpc::StatusCode>(status.code());
  const std::string message =
      Shortened(OneLine({status.message().data(), status.message().size()}));

  google::rpc::Status details;
  details.set_code(static_cast<int>(code));
  details.set_message(message);
  if (const std::string field = FieldOf(status); !field.empty()) {
    google::rpc::BadRequest bad_request;
    auto* violation = bad_request.add_field_violations();
    violation->set_field(field);
    violation->set_description(message);
    details.add_details()->PackFrom(bad_request);
  }
  if (const std::string reason = ReasonOf(status); !reason.empty()) {
    google::rpc::ErrorInfo info;
    info.set_reason(reason);
    info.set_domain(kErrorDomain);
    details.add_details()->PackFrom(info);
  }
  if (const std::optional<absl::Duration> delay = RetryAfterOf(status); delay.has_value()) {
    google::rpc::RetryInfo retry;
    SetDuration(*delay, retry.mutable_retry_delay());
    details.add_details()->PackFrom(retry);
  }
  if (details.details().empty()) return grpc::Status(code, message);
  return grpc::Status(code, message, details.SerializeAsString());
}

}  // namespace tlm
