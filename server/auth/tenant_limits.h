// How much one tenant may ask for.
#ifndef TLM_SERVER_AUTH_TENANT_LIMITS_H_
#define TLM_SERVER_AUTH_TENANT_LIMITS_H_

#include <cstdint>

namespace tlm {

inline constexpr int32_t kMaxPriority = 100;  // of a request; the smallest is its negative

struct TenantLimits {
  // 0: no limit.
  int64_t requests_per_minute = 0;
  int64_t tokens_per_minute = 0;  // of prompts and outputs together
  int64_t max_concurrent_requests = 0;
  // The largest its requests may ask for.
  int64_t max_priority = kMaxPriority;

  bool operator==(const TenantLimits&) const = default;
};

}  // namespace tlm

#endif  // TLM_SERVER_AUTH_TENANT_LIMITS_H_
