#ifndef TLM_TESTS_SUPPORT_FAKE_CLOCK_H_
#define TLM_TESTS_SUPPORT_FAKE_CLOCK_H_

#include "absl/time/time.h"
#include "model/base/clock.h"
#include "model/base/mutex.h"

namespace tlm {

// A clock that only Advance() moves. Thread-safe.
class FakeClock : public Clock {
 public:
  explicit FakeClock(absl::Time start = absl::UnixEpoch()) : now_(start) {}
  absl::Time Now() override {
    MutexLock lock(&mutex_);
    return now_;
  }
  void Advance(absl::Duration by) {
    MutexLock lock(&mutex_);
    now_ += by;
  }

 private:
  Mutex mutex_;
  absl::Time now_ TLM_GUARDED_BY(mutex_);
};

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_FAKE_CLOCK_H_
