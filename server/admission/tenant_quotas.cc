#include "server/admission/tenant_quotas.h"

#include <algorithm>
#include <string_view>

#include "model/base/errors.h"

namespace tlm {
namespace {

// The rounding error, in requests or tokens, of adding up fractions.
constexpr double kRounding = 1e-6;

// It is unknown when another call of the tenant will end.
constexpr absl::Duration kRetryConcurrent = absl::Seconds(1);

bool IsLimited(const TenantLimits& limits) {
  return limits.requests_per_minute > 0 || limits.tokens_per_minute > 0 ||
         limits.max_concurrent_requests > 0;
}

absl::Status OverQuota(absl::Duration retry, std::string_view what, int64_t limit) {
  return WithRetryAfter(
      WithReason(ResourceExhausted("the limit of this tenant is {} {}", limit, what),
                 "TENANT_QUOTA"),
      retry);
}

bool IsFull(const TokenBucket& budget, int64_t per_minute, absl::Time now) {
  return per_minute == 0 || budget.WaitFor(per_minute, per_minute, now) == absl::ZeroDuration();
}

}  // namespace

double TokenBucket::Left(int64_t per_minute, absl::Time now) const {
  const double full = static_cast<double>(per_minute);
  return std::min(full, left_ + full * absl::ToDoubleMinutes(now - since_));
}

absl::Duration TokenBucket::WaitFor(int64_t amount, int64_t per_minute, absl::Time now) const {
  const double missing = static_cast<double>(std::min(amount, per_minute)) - Left(per_minute, now);
  if (missing <= kRounding) return absl::ZeroDuration();
  return absl::Ceil(absl::Minutes(missing / static_cast<double>(per_minute)),
                    absl::Milliseconds(1));
}

void TokenBucket::Spend(int64_t amount, int64_t per_minute, absl::Time now) {
  left_ = Left(per_minute, now) - static_cast<double>(amount);
  since_ = now;
}

void TokenBucket::GiveBack(int64_t amount, int64_t per_minute, absl::Time now) {
  Spend(-amount, per_minute, now);
}

absl::Status TenantQuotas::CountRequest(const std::string& tenant, const TenantLimits& limits,
                                        absl::Time now) {
  if (limits.requests_per_minute == 0) return absl::OkStatus();
  Usage& usage = UsageOf(tenant, limits, now);
  const absl::Duration wait = usage.requests.WaitFor(1, limits.requests_per_minute, now);
  if (wait > absl::ZeroDuration()) {
    return OverQuota(wait, "requests per minute", limits.requests_per_minute);
  }
  usage.requests.Spend(1, limits.requests_per_minute, now);
  return absl::OkStatus();
}

absl::Status TenantQuotas::Check(const std::string& tenant, const TenantLimits& limits,
                                 int64_t tokens, absl::Time now) const {
  if (!IsLimited(limits)) return absl::OkStatus();
  const auto found = usages_.find(tenant);
  if (found == usages_.end()) return absl::OkStatus();
  const Usage& usage = found->second;
  if (limits.max_concurrent_requests > 0 && usage.active >= limits.max_concurrent_requests) {
    return OverQuota(kRetryConcurrent, "requests at once", limits.max_concurrent_requests);
  }
  if (limits.tokens_per_minute > 0 && tokens > 0) {
    const absl::Duration wait = usage.tokens.WaitFor(tokens, limits.tokens_per_minute, now);
    if (wait > absl::ZeroDuration()) {
      return OverQuota(wait, "tokens per minute", limits.tokens_per_minute);
    }
  }
  return absl::OkStatus();
}

void TenantQuotas::Begin(const std::string& tenant, const TenantLimits& limits, int64_t tokens,
                         absl::Time now) {
  if (!IsLimited(limits)) return;
  Usage& usage = UsageOf(tenant, limits, now);
  ++usage.active;
  if (limits.tokens_per_minute > 0) usage.tokens.Spend(tokens, limits.tokens_per_minute, now);
}

void TenantQuotas::Charge(const std::string& tenant, const TenantLimits& limits, int64_t tokens,
                          absl::Time now) {
  const auto found = usages_.find(tenant);
  if (found == usages_.end() || limits.tokens_per_minute == 0) return;
  found->second.tokens.Spend(tokens, limits.tokens_per_minute, now);
}

void TenantQuotas::Refund(const std::string& tenant, const TenantLimits& limits, int64_t tokens,
                          absl::Time now) {
  const auto found = usages_.find(tenant);
  if (found == usages_.end() || limits.tokens_per_minute == 0) return;
  found->second.tokens.GiveBack(tokens, limits.tokens_per_minute, now);
}

void TenantQuotas::End(const std::string& tenant, const TenantLimits& limits) {
  if (!IsLimited(limits)) return;
  const auto found = usages_.find(tenant);
  if (found != usages_.end()) --found->second.active;
}

TenantQuotas::Usage& TenantQuotas::UsageOf(const std::string& tenant, const TenantLimits& limits,
                                           absl::Time now) {
  if (usages_.size() >= forget_at_) ForgetIdle(now);
  Usage& usage = usages_[tenant];
  usage.limits = limits;
  return usage;
}

void TenantQuotas::ForgetIdle(absl::Time now) {
  absl::erase_if(usages_, [now](const auto& entry) {
    const Usage& usage = entry.second;
    return usage.active == 0 && IsFull(usage.requests, usage.limits.requests_per_minute, now) &&
           IsFull(usage.tokens, usage.limits.tokens_per_minute, now);
  });
  // Idle tenants are looked for again once there are twice as many, so that the cost per call stays
  // small.
  forget_at_ = std::max(kForgetAt, 2 * usages_.size());
}

}  // namespace tlm
