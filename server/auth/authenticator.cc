#include "server/auth/authenticator.h"

#include <utility>

#include "model/base/error_details.h"
#include "model/base/errors.h"

namespace tlm {
namespace {

// One for both: a message that differs would tell which keys there are.
constexpr char kMessage[] =
    "this server needs valid credentials: an API key as 'authorization: Bearer KEY', or a client "
    "certificate";

}  // namespace

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

}  // namespace tlm
