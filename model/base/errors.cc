#include "model/base/errors.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/cord.h"

namespace tlm {
namespace {

constexpr char kReasonUrl[] = "tlm/reason";
constexpr char kRetryUrl[] = "tlm/retry_after_ns";
constexpr char kFieldUrl[] = "tlm/field";

absl::Status WithDetail(absl::Status status, const char* url, std::string_view value) {
  status.SetPayload(url, absl::Cord(absl::string_view(value.data(), value.size())));
  return status;
}

std::optional<std::string> DetailOf(const absl::Status& status, const char* url) {
  const auto payload = status.GetPayload(url);
  if (!payload.has_value()) return std::nullopt;
  return std::string(*payload);
}

}  // namespace

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

absl::Status WithReason(absl::Status status, std::string_view reason) {
  return WithDetail(std::move(status), kReasonUrl, reason);
}

absl::Status WithRetryAfter(absl::Status status, absl::Duration delay) {
  return WithDetail(std::move(status), kRetryUrl, std::to_string(absl::ToInt64Nanoseconds(delay)));
}

absl::Status WithField(absl::Status status, std::string_view field) {
  return WithDetail(std::move(status), kFieldUrl, field);
}

std::string ReasonOf(const absl::Status& status) {
  return DetailOf(status, kReasonUrl).value_or("");
}

std::optional<absl::Duration> RetryAfterOf(const absl::Status& status) {
  const std::optional<std::string> text = DetailOf(status, kRetryUrl);
  if (!text.has_value()) return std::nullopt;
  return absl::Nanoseconds(static_cast<int64_t>(std::strtoll(text->c_str(), nullptr, 10)));
}

std::string FieldOf(const absl::Status& status) { return DetailOf(status, kFieldUrl).value_or(""); }

}  // namespace tlm
