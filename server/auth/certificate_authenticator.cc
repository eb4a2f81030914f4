#include "server/auth/certificate_authenticator.h"

#include <utility>

#include "server/auth/key_file.h"

namespace tlm {

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
