#include "client/openai/routes/caller.h"

#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <random>

#include "model/base/errors.h"

namespace tlm::openai {
namespace {

constexpr size_t kMaxRequestId = 128;
constexpr size_t kMaxTrace = 512;

// gRPC ends the process for metadata with other characters.
bool IsPrintable(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

std::string RandomId() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}", random(), random(), random());
}

bool IsBearer(const std::string& value) {
  constexpr size_t kLength = 7;
  return value.size() > kLength && strncasecmp(value.c_str(), "Bearer ", kLength) == 0;
}

}  // namespace

absl::StatusOr<Caller> CallerOf(const HttpRequest& request, const std::string& own_key,
                                bool passes_keys) {
  Caller caller;
  caller.request_id = request.Header("x-request-id");
  if (caller.request_id.empty()) caller.request_id = RandomId();
  if (caller.request_id.size() > kMaxRequestId || !IsPrintable(caller.request_id)) {
    return WithField(InvalidArgument("x-request-id has {} bytes: printable ASCII, at most {}",
                                     caller.request_id.size(), kMaxRequestId),
                     "x-request-id");
  }
  const std::string authorization = request.Header("authorization");
  if (!authorization.empty()) {
    if (!IsBearer(authorization) || !IsPrintable(authorization)) {
      return WithReason(
          absl::UnauthenticatedError("the Authorization header is not \"Bearer KEY\""),
          "BAD_CREDENTIALS");
    }
    if (passes_keys) {
      caller.metadata.emplace_back("authorization", "Bearer " + authorization.substr(7));
    }
  } else if (!own_key.empty()) {
    caller.metadata.emplace_back("authorization", "Bearer " + own_key);
  }
  for (const char* const name : {"traceparent", "tracestate"}) {
    const std::string value = request.Header(name);
    if (!value.empty() && value.size() <= kMaxTrace && IsPrintable(value)) {
      caller.metadata.emplace_back(name, value);
    }
  }
  return caller;
}

}  // namespace tlm::openai
