// Authentication: maps the credentials of a call to its caller.
#ifndef TLM_SERVER_AUTH_AUTHENTICATOR_H_
#define TLM_SERVER_AUTH_AUTHENTICATOR_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/auth/principal.h"

namespace tlm {

// A client certificate that the TLS handshake has verified.
struct PeerCertificate {
  std::string subject;                 // the distinguished name, in RFC 2253 form
  std::string common_name;             // the subject's, if it has exactly one
  std::vector<std::string> dns_names;  // subject alternative names of this kind
  std::vector<std::string> uris;       // names of this kind; a SPIFFE id is one
};

// Returns the token of the metadata `authorization` by RFC 6750: a view of `value` after "Bearer"
// (in any case) and spaces, up to the end. nullopt for another scheme, and for a token with
// characters that RFC 6750 does not allow.
std::optional<std::string_view> BearerToken(std::string_view value);

// Views; the data outlive the call of Authenticate.
struct CallCredentials {
  // Values of the metadata key `authorization`, unchanged.
  std::vector<std::string_view> authorization;
  std::optional<PeerCertificate> certificate;
};

// Thread-safe.
class Authenticator {
 public:
  virtual ~Authenticator() = default;
  // UNAUTHENTICATED, reason MISSING_CREDENTIALS, without credentials; UNAUTHENTICATED, reason
  // BAD_CREDENTIALS, for unknown, wrong, disabled or expired ones, without distinguishing them;
  // PERMISSION_DENIED, reason ROLE_REQUIRED, for valid ones without the role.
  virtual absl::StatusOr<Principal> Authenticate(const CallCredentials& credentials,
                                                 Role role) const = 0;
};

// Return the refusals of Authenticate, the same for every authenticator.
absl::Status MissingCredentials();
absl::Status BadCredentials();
// Returns `principal` if it has `role`, else PERMISSION_DENIED.
absl::StatusOr<Principal> WithRole(Principal principal, Role role);

// Accepts every call, without a tenant and with all roles. For ports that are reachable only from
// this machine or a trusted network.
class AllowAllAuthenticator final : public Authenticator {
 public:
  absl::StatusOr<Principal> Authenticate(const CallCredentials&, Role) const override {
    return Principal();
  }
};

// Accepts client certificates as the only credentials. The subject's common name is the tenant,
// without limits and with only the role inference: otherwise every holder of a certificate could
// administer the server. Administrators need a key file. A common name that is not a tenant name
// (key_file.h) is a bad credential; `authorization` is ignored. Thread-safe.
class CertificateAuthenticator final : public Authenticator {
 public:
  absl::StatusOr<Principal> Authenticate(const CallCredentials& credentials,
                                         Role role) const override;
};

}  // namespace tlm

#endif  // TLM_SERVER_AUTH_AUTHENTICATOR_H_
