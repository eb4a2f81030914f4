// Machine-readable details of an absl::Status (server/rpc turns them into google.rpc details).
#ifndef TLM_MODEL_BASE_ERROR_DETAILS_H_
#define TLM_MODEL_BASE_ERROR_DETAILS_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tlm {

// The reason, in capitals: "QUEUE_FULL". Returns the status with the detail added; OK is unchanged.
absl::Status WithReason(absl::Status status, std::string_view reason);
// The reason of a device's fault that all its later calls return, too.
inline constexpr std::string_view kDeviceLost = "DEVICE_LOST";
// The time after which to retry.
absl::Status WithRetryAfter(absl::Status status, absl::Duration delay);
// The path of the request field at fault, "sampling.top_p", or the tensor of a model file. The
// message describes the fault.
absl::Status WithField(absl::Status status, std::string_view field);

// The details, empty or nullopt where there is none.
std::string ReasonOf(const absl::Status& status);
std::optional<absl::Duration> RetryAfterOf(const absl::Status& status);
std::string FieldOf(const absl::Status& status);

}  // namespace tlm

#endif  // TLM_MODEL_BASE_ERROR_DETAILS_H_
