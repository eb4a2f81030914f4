// Checks each tenant's usage against its limits.
#ifndef TLM_SERVER_ADMISSION_TENANT_QUOTAS_H_
#define TLM_SERVER_ADMISSION_TENANT_QUOTAS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/auth/principal.h"

namespace tlm {

// A token bucket that holds the tokens of one minute. Holds at most `per_minute` tokens, starts
// full and refills steadily; may become negative. `per_minute`, >= 1, may differ from call to call:
// a smaller value reduces the tokens left. Not thread-safe.
class TokenBucket {
 public:
  // Returns the tokens left; may be negative.
  double Left(int64_t per_minute, absl::Time now) const;
  // Returns the time until the bucket has `amount`, or is full if `amount` exceeds `per_minute`.
  // Zero: now.
  absl::Duration WaitFor(int64_t amount, int64_t per_minute, absl::Time now) const;
  void Spend(int64_t amount, int64_t per_minute, absl::Time now);
  // Undoes a Spend.
  void GiveBack(int64_t amount, int64_t per_minute, absl::Time now);

 private:
  double left_ = 0;  // tokens left at `since_`
  absl::Time since_ = absl::InfinitePast();
};

// Limits come with each call and apply from then on. Memory is kept only for recently active
// tenants with limits: a tenant is forgotten once its buckets are full again. Not thread-safe.
class TenantQuotas {
 public:
  // Charges a call as one of the minute's requests. Charged even if refused later: parsing costs
  // time. RESOURCE_EXHAUSTED, reason TENANT_QUOTA, with a retry time, when the minute's requests
  // are used up; nothing is charged then.
  absl::Status CountRequest(const std::string& tenant, const TenantLimits& limits, absl::Time now);
  // Refuses, like CountRequest, a call that exceeds the limit of concurrent requests or of tokens;
  // a call with 0 `tokens` is not subject to the token limit. A call with more tokens than a
  // minute's is accepted when the bucket is full, and leaves it negative.
  absl::Status Check(const std::string& tenant, const TenantLimits& limits, int64_t tokens,
                     absl::Time now) const;

  // Starts a call that passed Check(): charges the `tokens` of its prompt.
  void Begin(const std::string& tenant, const TenantLimits& limits, int64_t tokens, absl::Time now);
  // Charges generated tokens, even if the bucket becomes negative.
  void Charge(const std::string& tenant, const TenantLimits& limits, int64_t tokens,
              absl::Time now);
  // Refunds the charge of Begin: nothing was computed for the call.
  void Refund(const std::string& tenant, const TenantLimits& limits, int64_t tokens,
              absl::Time now);
  // Ends a started call.
  void End(const std::string& tenant, const TenantLimits& limits);

  size_t size() const { return usages_.size(); }

 private:
  struct Usage {
    TokenBucket requests;
    TokenBucket tokens;
    int64_t active = 0;
    TenantLimits limits;  // the latest
  };

  // Returns the tenant's usage; creates it if needed.
  Usage& UsageOf(const std::string& tenant, const TenantLimits& limits, absl::Time now);
  void ForgetIdle(absl::Time now);

  absl::flat_hash_map<std::string, Usage> usages_;
  size_t forget_at_ = kForgetAt;  // size from which idle tenants are removed
  static constexpr size_t kForgetAt = 1024;
};

}  // namespace tlm

#endif  // TLM_SERVER_ADMISSION_TENANT_QUOTAS_H_
