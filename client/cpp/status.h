// Statuses of calls, with the typed details of the server.
#ifndef TLM_CLIENT_CPP_STATUS_H_
#define TLM_CLIENT_CPP_STATUS_H_

#include <grpcpp/support/status.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tlm::client {

// An invalid field of a request.
struct FieldViolation {
  std::string field;        // "sampling.top_p"
  std::string description;  // the value and the limit
};

// The details of a failed call in addition to code and message. Members that the server did not
// send are empty.
struct ErrorDetails {
  std::vector<FieldViolation> violations;
  std::string reason;  // machine-readable: "QUEUE_FULL"
  std::string domain;  // namespace of `reason`: "tlm"
  std::map<std::string, std::string> metadata;
  std::optional<absl::Duration> retry_delay;  // retry after this time
};

// Keeps code and message, and adds the details as a payload for DetailsOf.
absl::Status FromGrpcStatus(const grpc::Status& status);

// Returns the details of a status that this library returned, without malformed ones and unknown
// types.
ErrorDetails DetailsOf(const absl::Status& status);

// Returns the code in gRPC's spelling: "INVALID_ARGUMENT".
std::string CodeName(absl::StatusCode code);

}  // namespace tlm::client

#endif  // TLM_CLIENT_CPP_STATUS_H_
