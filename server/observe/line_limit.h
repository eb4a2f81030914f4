// Rate limit for log lines that clients can cause.
#ifndef TLM_SERVER_OBSERVE_LINE_LIMIT_H_
#define TLM_SERVER_OBSERVE_LINE_LIMIT_H_

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "model/base/mutex.h"

namespace tlm {

// At most `lines` in each second. Thread-safe.
class LineLimit {
 public:
  explicit LineLimit(int64_t lines) : lines_(lines) {}

  // The number of lines suppressed since the last one if a line may be written at `now`, else
  // nullopt.
  std::optional<int64_t> Take(absl::Time now) {
    MutexLock lock(&mutex_);
    if (now - second_ >= absl::Seconds(1)) {
      second_ = now;
      written_ = 0;
    }
    if (written_ >= lines_) {
      ++suppressed_;
      return std::nullopt;
    }
    ++written_;
    return std::exchange(suppressed_, 0);
  }

 private:
  const int64_t lines_;
  Mutex mutex_;
  absl::Time second_ TLM_GUARDED_BY(mutex_) = absl::InfinitePast();
  int64_t written_ TLM_GUARDED_BY(mutex_) = 0;
  int64_t suppressed_ TLM_GUARDED_BY(mutex_) = 0;
};

}  // namespace tlm

#endif  // TLM_SERVER_OBSERVE_LINE_LIMIT_H_
