// A token bucket with a capacity of one minute, which may become negative.
#ifndef TLM_SERVER_ADMISSION_TOKEN_BUCKET_H_
#define TLM_SERVER_ADMISSION_TOKEN_BUCKET_H_

#include <cstdint>

#include "absl/time/time.h"

namespace tlm {

// Holds at most `per_minute` tokens, starts full and refills steadily. `per_minute`, >= 1, may
// differ from call to call: a smaller one reduces the tokens left. Not thread-safe.
class TokenBucket {
 public:
  // Tokens left; may be negative.
  double Left(int64_t per_minute, absl::Time now) const;
  // Time until the bucket has `amount`, or is full if `amount` exceeds `per_minute`. Zero: now.
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
