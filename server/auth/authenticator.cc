#include "server/auth/authenticator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "model/base/errors.h"
#include "server/auth/key_file.h"

namespace tlm {
namespace {

// One message for both faults: different messages would reveal which keys exist.
constexpr char kMessage[] =
    "this server needs valid credentials: an API key as 'authorization: Bearer KEY', or a client "
    "certificate";

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

absl::Status MissingCredentials() {
  return WithReason(absl::UnauthenticatedError(kMessage), "MISSING_CREDENTIALS");
}

absl::Status BadCredentials() {
  return WithReason(absl::UnauthenticatedError(kMessage), "BAD_CREDENTIALS");
}

absl::StatusOr<Principal> WithRole(Principal principal, Role role) {
  if (principal.Has(role)) return principal;
  return WithReason(absl::PermissionDeniedError(
                        role == Role::kAdmin ? "these credentials do not have the role admin"
                                             : "these credentials do not have the role inference"),
                    "ROLE_REQUIRED");
}

absl::StatusOr<Principal> CertificateAuthenticator::Authenticate(const CallCredentials& credentials,
                                                                 Role role) const {
  if (!credentials.certificate.has_value()) return MissingCredentials();
  const PeerCertificate& certificate = *credentials.certificate;
  if (!IsTenantName(certificate.common_name)) return BadCredentials();
  Principal principal;
  principal.tenant = certificate.common_name;
  principal.credential = certificate.subject;
  principal.may_administer = false;
  principal.limits = KeyFile().LimitsOf(principal.tenant);
  return WithRole(std::move(principal), role);
}

}  // namespace tlm
