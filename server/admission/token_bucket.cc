#include "server/admission/token_bucket.h"

#include <algorithm>

namespace tlm {
namespace {

// Of one request or token: what adding up fractions may be off by.
constexpr double kRounding = 1e-6;

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

}  // namespace tlm
