#include "server/config/flag_types.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>

#include "absl/flags/marshalling.h"
#include "absl/strings/ascii.h"

namespace tlm {
namespace {

struct Unit {
  std::string_view name;  // lower case
  int64_t bytes;
};

constexpr char kNone[] = "none";
constexpr char kAuto[] = "auto";

constexpr int64_t kKibi = 1024;
constexpr int64_t kKilo = 1000;
constexpr Unit kUnits[] = {
    {"", 1},
    {"b", 1},
    {"kib", kKibi},
    {"mib", kKibi* kKibi},
    {"gib", kKibi* kKibi* kKibi},
    {"tib", kKibi* kKibi* kKibi* kKibi},
    {"kb", kKilo},
    {"mb", kKilo* kKilo},
    {"gb", kKilo* kKilo* kKilo},
    {"tb", kKilo* kKilo* kKilo* kKilo},
};

}  // namespace

bool AbslParseFlag(absl::string_view text, ByteSize* size, std::string* error) {
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data(), end, number);
  if (problem == std::errc() && number >= 0) {
    const std::string unit = absl::AsciiStrToLower(absl::string_view(rest, end - rest));
    for (const auto& [name, bytes] : kUnits) {
      if (unit != name) continue;
      if (number > std::numeric_limits<int64_t>::max() / bytes) break;
      size->bytes = number * bytes;
      return true;
    }
  }
  *error = "a size is a whole number below 2^63 bytes with a unit such as MiB or GB";
  return false;
}

std::string AbslUnparseFlag(ByteSize size) { return fmt::format("{}", size.bytes); }

bool AbslParseFlag(absl::string_view text, PathOrNone* file, std::string* error) {
  if (text.empty()) {
    *error = "it names no file; leave the flag out, or say none, if there is to be none";
    return false;
  }
  file->path = text == kNone ? std::string() : std::string(text);
  return true;
}

std::string AbslUnparseFlag(const PathOrNone& file) {
  return file.path.empty() ? kNone : file.path;
}

bool AbslParseFlag(absl::string_view text, AutoSwitch* value, std::string* error) {
  value->on.reset();
  if (text == kAuto) return true;
  bool on = false;
  if (!absl::ParseFlag(text, &on, error)) {
    *error = "it must be true, false or auto";
    return false;
  }
  value->on = on;
  return true;
}

std::string AbslUnparseFlag(AutoSwitch value) {
  return value.on.has_value() ? absl::UnparseFlag(*value.on) : kAuto;
}

}  // namespace tlm
