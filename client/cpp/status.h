// From a gRPC status to absl::Status, and the typed details a server attached to it.
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

// One thing that is wrong with a request.
struct FieldViolation {
  std::string field;        // "sampling.top_p"
  std::string description;  // the value and the limit
};

// What a server says about a failure besides code and message. Members a server did not send are
// empty.
struct ErrorDetails {
  std::vector<FieldViolation> violations;
  std::string reason;  // for programs to branch on: "QUEUE_FULL"
  std::string domain;  // who defines `reason`: "tlm"
  std::map<std::string, std::string> metadata;
  std::optional<absl::Duration> retry_delay;  // wait this long before trying again
};

// The same code and message; the details travel along as a payload, for DetailsOf.
absl::Status FromGrpcStatus(const grpc::Status& status);

// The details of a status that a call of this library returned. Details that are malformed or of an
// unknown type are left out.
ErrorDetails DetailsOf(const absl::Status& status);

// The code as gRPC spells it: "INVALID_ARGUMENT".
std::string CodeName(absl::StatusCode code);

}  // namespace tlm::client

#endif  // TLM_CLIENT_CPP_STATUS_H_
