// What each tenant has used of its limits.
#ifndef TLM_SERVER_ADMISSION_TENANT_QUOTAS_H_
#define TLM_SERVER_ADMISSION_TENANT_QUOTAS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/admission/token_bucket.h"
#include "server/auth/principal.h"

namespace tlm {

// Limits come with each call and apply from then on. A tenant without limits takes no memory, and
// one whose buckets are full again is forgotten, so that only recently active tenants are kept. Not
// thread-safe.
class TenantQuotas {
 public:
  // A call has come: charged as one of the minute's requests, whatever becomes of it, since reading
  // it takes work. RESOURCE_EXHAUSTED, reason TENANT_QUOTA, with the time after which it would not
  // be refused, when they are spent; then nothing is charged.
  absl::Status CountRequest(const std::string& tenant, const TenantLimits& limits, absl::Time now);
  // As CountRequest refuses, when a call with `tokens` tokens is over the limit of requests at once
  // or of tokens, which holds back no call without any. More tokens than a minute gives are let in
  // while that minute's are all there, and leave a debt.
  absl::Status Check(const std::string& tenant, const TenantLimits& limits, int64_t tokens,
                     absl::Time now) const;

  // A call that has been Check()ed begins: charged with `tokens`, of its prompt.
  void Begin(const std::string& tenant, const TenantLimits& limits, int64_t tokens, absl::Time now);
  // Tokens it has generated: charged when they are known, whatever is left.
  void Charge(const std::string& tenant, const TenantLimits& limits, int64_t tokens,
              absl::Time now);
  // Nothing was computed for a call that has begun: what Begin charged is given back.
  void Refund(const std::string& tenant, const TenantLimits& limits, int64_t tokens,
              absl::Time now);
  // A call that has begun is over.
  void End(const std::string& tenant, const TenantLimits& limits);

  size_t size() const { return usages_.size(); }

 private:
  struct Usage {
    TokenBucket requests;
    TokenBucket tokens;
    int64_t active = 0;
    TenantLimits limits;  // the latest
  };

  // Of a tenant, from now on if need be.
  Usage& UsageOf(const std::string& tenant, const TenantLimits& limits, absl::Time now);
  void ForgetIdle(absl::Time now);

  absl::flat_hash_map<std::string, Usage> usages_;
  size_t forget_at_ = kForgetAt;  // size at which the idle ones are looked for
  static constexpr size_t kForgetAt = 1024;
};

}  // namespace tlm

#endif  // TLM_SERVER_ADMISSION_TENANT_QUOTAS_H_
