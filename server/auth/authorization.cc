#include "server/auth/authorization.h"

#include <algorithm>

#include "absl/strings/ascii.h"

namespace tlm {
namespace {

bool IsTokenCharacter(char c) {
  constexpr std::string_view kOthers = "-._~+/=";
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || kOthers.find(c) != kOthers.npos;
}

}  // namespace

std::optional<std::string_view> BearerToken(std::string_view value) {
  constexpr std::string_view kScheme = "bearer";
  const bool bearer =
      value.size() > kScheme.size() && value[kScheme.size()] == ' ' &&
      std::equal(kScheme.begin(), kScheme.end(), value.begin(), [](char expected, char c) {
        return expected == absl::ascii_tolower(static_cast<unsigned char>(c));
      });
  if (!bearer) return std::nullopt;
  value.remove_prefix(kScheme.size());
  value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
  if (value.empty() || !std::all_of(value.begin(), value.end(), IsTokenCharacter)) {
    return std::nullopt;
  }
  return value;
}

}  // namespace tlm
