// Machine-readable details that travel inside an absl::Status from where an error is found to where
// it is sent (server/rpc turns them into google.rpc details).
#ifndef TLM_MODEL_BASE_ERROR_DETAILS_H_
#define TLM_MODEL_BASE_ERROR_DETAILS_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tlm {

// Why, as a constant in capitals: "QUEUE_FULL". Returns the status with the detail added; OK stays
// as it is.
absl::Status WithReason(absl::Status status, std::string_view reason);
// When trying again makes sense.
absl::Status WithRetryAfter(absl::Status status, absl::Duration delay);
// The request field at fault, as a path: "sampling.top_p"; of a model's files, the tensor. The
// message describes it.
absl::Status WithField(absl::Status status, std::string_view field);

// The details, empty or nullopt where there is none.
std::string ReasonOf(const absl::Status& status);
std::optional<absl::Duration> RetryAfterOf(const absl::Status& status);
std::string FieldOf(const absl::Status& status);

}  // namespace tlm

#endif  // TLM_MODEL_BASE_ERROR_DETAILS_H_
