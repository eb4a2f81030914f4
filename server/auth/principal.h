// Defines Principal, the authenticated caller of a call.
#ifndef TLM_SERVER_AUTH_PRINCIPAL_H_
#define TLM_SERVER_AUTH_PRINCIPAL_H_

#include <cstdint>
#include <string>

namespace tlm {

inline constexpr int32_t kMaxPriority = 100;  // a request's; the smallest is -kMaxPriority

struct TenantLimits {
  // In these three, 0 means no limit.
  int64_t requests_per_minute = 0;
  int64_t tokens_per_minute = 0;  // tokens of prompts and outputs together
  int64_t max_concurrent_requests = 0;
  // The largest priority that its requests may have.
  int64_t max_priority = kMaxPriority;

  bool operator==(const TenantLimits&) const = default;
};

enum class Role {
  kInference,  // the data port
  kAdmin,      // the Admin service, and the data port too
};

struct Principal {
  // Limits, fairness and the prefix cache are per tenant. Empty: no tenant.
  std::string tenant;
  // For the log: the id of the API key or the subject of the certificate, never a secret. Empty: no
  // credentials were needed.
  std::string credential;
  bool may_infer = true;
  bool may_administer = true;
  TenantLimits limits;  // the tenant's, for all its credentials together

  bool Has(Role role) const { return role == Role::kAdmin ? may_administer : may_infer; }
};

}  // namespace tlm

#endif  // TLM_SERVER_AUTH_PRINCIPAL_H_
