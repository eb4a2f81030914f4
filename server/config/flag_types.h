// Defines types of flags and checks of their values.
#ifndef TLM_SERVER_CONFIG_FLAG_TYPES_H_
#define TLM_SERVER_CONFIG_FLAG_TYPES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "model/base/errors.h"

namespace tlm {

// A size in bytes. Its text is an integer with an optional unit: KiB, MiB, GiB, TiB (powers of
// 1024) or kB, MB, GB, TB (powers of 1000), in upper or lower case. Without a unit the number is in
// bytes.
struct ByteSize {
  int64_t bytes = 0;
};

bool AbslParseFlag(absl::string_view text, ByteSize* size, std::string* error);
std::string AbslUnparseFlag(ByteSize size);

// A file of credentials. Its text is a path, or "none", the default, and never empty:
// `--api_keys=$KEYS` with an unset variable is an error and does not turn authentication off.
struct PathOrNone {
  std::string path;  // empty: no file
};

bool AbslParseFlag(absl::string_view text, PathOrNone* file, std::string* error);
std::string AbslUnparseFlag(const PathOrNone& file);

// A switch that the server sets itself by default. Its text is auto, the default, or the text of a
// bool flag. Like a bool flag it may be given as --NAME or --noNAME: see ParseFlags.
struct AutoSwitch {
  std::optional<bool> on;  // nullopt: auto
};

bool AbslParseFlag(absl::string_view text, AutoSwitch* value, std::string* error);
std::string AbslUnparseFlag(AutoSwitch value);

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

#endif  // TLM_SERVER_CONFIG_FLAG_TYPES_H_
