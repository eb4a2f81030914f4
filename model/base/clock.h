// Time as a dependency: production passes Clock::Real(), tests pass a FakeClock.
#ifndef TLM_MODEL_BASE_CLOCK_H_
#define TLM_MODEL_BASE_CLOCK_H_

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "model/base/mutex.h"

namespace tlm {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  // Wall-clock time, the kind a gRPC deadline is given in.
  virtual absl::Time Now() = 0;

  // The system's clock; lives for ever.
  static Clock* Real() {
    class RealClock : public Clock {
      absl::Time Now() override { return absl::Now(); }
    };
    static RealClock* const clock = new RealClock;
    return clock;
  }
};

// Stands still until told to move. Thread-safe.
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

#endif  // TLM_MODEL_BASE_CLOCK_H_
