// Client certificates as the only credentials.
#ifndef TLM_SERVER_AUTH_CERTIFICATE_AUTHENTICATOR_H_
#define TLM_SERVER_AUTH_CERTIFICATE_AUTHENTICATOR_H_

#include "server/auth/authenticator.h"

namespace tlm {

// The subject's common name is the tenant, without limits and with the role inference: every holder
// of a certificate could administer the server otherwise. A key file names those who may. A common
// name that is no name of a tenant (key_file.h) is a bad credential; `authorization` is not looked
// at. Thread-safe.
class CertificateAuthenticator final : public Authenticator {
 public:
  absl::StatusOr<Principal> Authenticate(const CallCredentials& credentials,
                                         Role role) const override;
};

}  // namespace tlm

#endif  // TLM_SERVER_AUTH_CERTIFICATE_AUTHENTICATOR_H_
