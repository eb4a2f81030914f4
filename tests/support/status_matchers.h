// Matchers for absl::Status and absl::StatusOr, which the distribution's Abseil lacks.
#ifndef TLM_TESTS_SUPPORT_STATUS_MATCHERS_H_
#define TLM_TESTS_SUPPORT_STATUS_MATCHERS_H_

#include <gmock/gmock.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tlm {

inline const absl::Status& GetStatus(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& GetStatus(const absl::StatusOr<T>& result) {
  return result.status();
}

MATCHER(IsOk, "is OK") {
  *result_listener << "which is " << GetStatus(arg);
  return GetStatus(arg).ok();
}

// Use: EXPECT_THAT(Open(path), StatusIs(absl::StatusCode::kNotFound, HasSubstr("no such file")));
MATCHER_P2(StatusIs, code, message, "") {
  const absl::Status& status = GetStatus(arg);
  *result_listener << "which is " << status;
  return status.code() == code && ::testing::Matches(message)(std::string(status.message()));
}

// EXPECT_THAT(Open(path), IsNotFound("no such file", path)): a status of that code whose message
// has all of these parts.
template <absl::StatusCode kCode>
inline constexpr auto kStatusWith = [](const auto&... parts) {
  return StatusIs(kCode, ::testing::AllOf(::testing::HasSubstr(parts)...));
};
inline constexpr auto IsInvalidArgument = kStatusWith<absl::StatusCode::kInvalidArgument>;
inline constexpr auto IsUnimplemented = kStatusWith<absl::StatusCode::kUnimplemented>;
inline constexpr auto IsNotFound = kStatusWith<absl::StatusCode::kNotFound>;
inline constexpr auto IsFailedPrecondition = kStatusWith<absl::StatusCode::kFailedPrecondition>;
inline constexpr auto IsResourceExhausted = kStatusWith<absl::StatusCode::kResourceExhausted>;
inline constexpr auto IsUnavailable = kStatusWith<absl::StatusCode::kUnavailable>;
inline constexpr auto IsDataLoss = kStatusWith<absl::StatusCode::kDataLoss>;
inline constexpr auto IsInternal = kStatusWith<absl::StatusCode::kInternal>;

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_STATUS_MATCHERS_H_
