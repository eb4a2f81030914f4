// So much a minute: a token bucket that may go into debt.
#ifndef TLM_SERVER_ADMISSION_TOKEN_BUCKET_H_
#define TLM_SERVER_ADMISSION_TOKEN_BUCKET_H_

#include <cstdint>

#include "absl/time/time.h"

namespace tlm {

// Holds at most what a minute gives, and begins full: after a pause, a minute's worth may be spent
// at once. Grows steadily. `per_minute`, >= 1, may differ from call to call: what is left is cut to
// a smaller one. Not thread-safe.
class TokenBucket {
 public:
  // What may be spent; negative: debt.
  double Left(int64_t per_minute, absl::Time now) const;
  // How long until `amount` may be spent, or the budget is full where that is less: an amount no
  // minute ever gives is spent from a full budget, on credit. Zero: now.
  absl::Duration WaitFor(int64_t amount, int64_t per_minute, absl::Time now) const;
  void Spend(int64_t amount, int64_t per_minute, absl::Time now);
  // Undoes a Spend.
  void GiveBack(int64_t amount, int64_t per_minute, absl::Time now);

 private:
  double left_ = 0;  // at `since_`
  absl::Time since_ = absl::InfinitePast();
};

}  // namespace tlm

#endif  // TLM_SERVER_ADMISSION_TOKEN_BUCKET_H_
