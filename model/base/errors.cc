#include "model/base/errors.h"

#include <cstdio>
#include <cstdlib>
#include <string>

namespace tlm {

absl::Status WithContext(const absl::Status& status, const std::string& context) {
  if (status.ok()) return status;
  absl::Status result(status.code(), fmt::format("{}: {}", context, std::string(status.message())));
  status.ForEachPayload([&result](absl::string_view url, const absl::Cord& payload) {
    result.SetPayload(url, payload);
  });
  return result;
}

void CheckFailed(const char* file, int line, const std::string& message) {
  std::fprintf(stderr, "%s:%d: %s failed\n", file, line, message.c_str());
  std::abort();
}

}  // namespace tlm
