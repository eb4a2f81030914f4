// Statuses with formatted messages and machine-readable details (server/rpc turns these into
// google.rpc details), and the two macros that return them.
//
// Whatever a user, a file, the network or a device can cause is an absl::Status whose message names
// the offending value and the limit. TLM_CHECK is for the program's own broken promises only.
// Messages are formatted with fmt because the distribution's absl::StrCat does not take
// std::string_view.
#ifndef TLM_MODEL_BASE_ERRORS_H_
#define TLM_MODEL_BASE_ERRORS_H_

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tlm {

template <typename... Args>
absl::Status MakeStatus(absl::StatusCode code, fmt::format_string<Args...> format, Args&&... args) {
  return absl::Status(code, fmt::format(format, std::forward<Args>(args)...));
}

// Each code has a function: InvalidArgument("top_k is {}, the limit is {}", k, limit).
#define TLM_INTERNAL_STATUS_MAKER(Name, Code)                                       \
  template <typename... Args>                                                       \
  absl::Status Name(fmt::format_string<Args...> format, Args&&... args) {           \
    return MakeStatus(absl::StatusCode::Code, format, std::forward<Args>(args)...); \
  }
TLM_INTERNAL_STATUS_MAKER(InvalidArgument, kInvalidArgument)
TLM_INTERNAL_STATUS_MAKER(NotFound, kNotFound)
TLM_INTERNAL_STATUS_MAKER(FailedPrecondition, kFailedPrecondition)
TLM_INTERNAL_STATUS_MAKER(ResourceExhausted, kResourceExhausted)
TLM_INTERNAL_STATUS_MAKER(Unimplemented, kUnimplemented)
TLM_INTERNAL_STATUS_MAKER(Unavailable, kUnavailable)
TLM_INTERNAL_STATUS_MAKER(Internal, kInternal)
TLM_INTERNAL_STATUS_MAKER(DataLoss, kDataLoss)
TLM_INTERNAL_STATUS_MAKER(AlreadyExists, kAlreadyExists)
TLM_INTERNAL_STATUS_MAKER(DeadlineExceeded, kDeadlineExceeded)
TLM_INTERNAL_STATUS_MAKER(Cancelled, kCancelled)
TLM_INTERNAL_STATUS_MAKER(Aborted, kAborted)
#undef TLM_INTERNAL_STATUS_MAKER

// Puts `context` before the status's message: "model.safetensors: header is not JSON". Keeps code
// and payloads.
absl::Status WithContext(const absl::Status& status, const std::string& context);

// Prints message and source location to stderr, then aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const std::string& message);

// Adds a reason in capitals, such as "QUEUE_FULL", to the status's details; leaves OK unchanged.
absl::Status WithReason(absl::Status status, std::string_view reason);
// The reason of a device's fault; all its later calls return it, too.
inline constexpr std::string_view kDeviceLost = "DEVICE_LOST";
// Adds the time after which to retry.
absl::Status WithRetryAfter(absl::Status status, absl::Duration delay);
// Adds the path of the request field at fault, such as "sampling.top_p", or the tensor of a model
// file. The message describes the fault.
absl::Status WithField(absl::Status status, std::string_view field);

// Return the details; empty or nullopt where the status has no such detail.
std::string ReasonOf(const absl::Status& status);
std::optional<absl::Duration> RetryAfterOf(const absl::Status& status);
std::string FieldOf(const absl::Status& status);

}  // namespace tlm

#define TLM_INTERNAL_CONCAT2(a, b) a##b
#define TLM_INTERNAL_CONCAT(a, b) TLM_INTERNAL_CONCAT2(a, b)

#define TLM_RETURN_IF_ERROR(expression)                               \
  do {                                                                \
    if (absl::Status tlm_status_ = (expression); !tlm_status_.ok()) { \
      return tlm_status_;                                             \
    }                                                                 \
  } while (false)

// Use: TLM_ASSIGN_OR_RETURN(auto file, MappedFile::Open(path));
#define TLM_ASSIGN_OR_RETURN(target, expression) \
  TLM_INTERNAL_ASSIGN_OR_RETURN(TLM_INTERNAL_CONCAT(tlm_statusor_, __LINE__), target, expression)
#define TLM_INTERNAL_ASSIGN_OR_RETURN(statusor, target, expression) \
  auto statusor = (expression);                                     \
  if (!statusor.ok()) return std::move(statusor).status();          \
  target = std::move(statusor).value()

#define TLM_CHECK(condition)                                                       \
  do {                                                                             \
    if (!(condition)) ::tlm::CheckFailed(__FILE__, __LINE__, "check " #condition); \
  } while (false)

#endif  // TLM_MODEL_BASE_ERRORS_H_
