// The metadata `authorization`, RFC 6750: "Bearer KEY".
#ifndef TLM_SERVER_AUTH_AUTHORIZATION_H_
#define TLM_SERVER_AUTH_AUTHORIZATION_H_

#include <optional>
#include <string_view>

namespace tlm {

// What stands behind "Bearer" (in any case) and spaces, up to the end; a view of `value`. nullopt
// for another scheme, and for a token with characters that RFC 6750 does not have.
std::optional<std::string_view> BearerToken(std::string_view value);

}  // namespace tlm

#endif  // TLM_SERVER_AUTH_AUTHORIZATION_H_
