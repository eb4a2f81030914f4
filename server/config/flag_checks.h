// What the readers of flags ask of values.
#ifndef TLM_SERVER_CONFIG_FLAG_CHECKS_H_
#define TLM_SERVER_CONFIG_FLAG_CHECKS_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "model/base/errors.h"

namespace tlm {

// INVALID_ARGUMENT names flag, value and range.
inline absl::Status CheckRange(std::string_view flag, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return InvalidArgument("--{} is {}, the range is [{}, {}]", flag, value, low, high);
}

inline absl::Status CheckNotNegative(std::string_view flag, absl::Duration value) {
  if (value >= absl::ZeroDuration()) return absl::OkStatus();
  return InvalidArgument("--{} is {}, it must not be negative", flag, absl::FormatDuration(value));
}

}  // namespace tlm

#endif  // TLM_SERVER_CONFIG_FLAG_CHECKS_H_
