// How much one tenant may ask for.
#ifndef TLM_SERVER_AUTH_TENANT_LIMITS_H_
#define TLM_SERVER_AUTH_TENANT_LIMITS_H_

#include <cstdint>

namespace tlm {

// 0: no limit.
struct TenantLimits {
  int64_t requests_per_minute = 0;
  int64_t tokens_per_minute = 0;  // of prompts and outputs together
  int64_t max_concurrent_requests = 0;

  bool operator==(const TenantLimits&) const = default;
};

}  // namespace tlm

#endif  // TLM_SERVER_AUTH_TENANT_LIMITS_H_
