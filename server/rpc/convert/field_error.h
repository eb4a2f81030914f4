// Makes errors about one field of a request. The message starts with the field's path, which is
// also a detail of the status. The log shows the path, so it must not contain client text: it
// consists of field names and indices, and a name that the client chose is Quoted
// ("parameters['beams']").
#ifndef TLM_SERVER_RPC_CONVERT_FIELD_ERROR_H_
#define TLM_SERVER_RPC_CONVERT_FIELD_ERROR_H_

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "model/base/errors.h"

namespace tlm {

// Example: BadField("sampling.top_p", "is {}, the range is (0, 1]", top_p).
template <typename... Args>
absl::Status BadField(std::string_view field, fmt::format_string<Args...> format, Args&&... args) {
  return WithField(
      InvalidArgument("{} {}", field, fmt::format(format, std::forward<Args>(args)...)), field);
}

inline absl::Status NotBuilt(std::string_view field, std::string_view what) {
  return WithField(Unimplemented("{}: this server does not support {}", field, what), field);
}

// FAILED_PRECONDITION: the served model lacks what the field needs.
inline absl::Status MissingTrait(std::string_view field, std::string_view what) {
  return WithField(FailedPrecondition("{}: {}", field, what), field);
}

// INVALID_ARGUMENT unless low <= value <= high.
template <typename T>
absl::Status CheckRange(std::string_view field, T value, T low, T high) {
  // This form rejects NaN.
  if (value >= low && value <= high) return absl::OkStatus();
  return BadField(field, "is {}, the range is [{}, {}]", value, low, high);
}

// INVALID_ARGUMENT when `count` exceeds `limit`.
inline absl::Status CheckCount(std::string_view field, int64_t count, int64_t limit) {
  if (count <= limit) return absl::OkStatus();
  return BadField(field, "has {} entries, the limit is {}", count, limit);
}

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CONVERT_FIELD_ERROR_H_
