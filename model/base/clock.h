// Time as a dependency: production passes one of the two real clocks, tests pass a FakeClock.
#ifndef TLM_MODEL_BASE_CLOCK_H_
#define TLM_MODEL_BASE_CLOCK_H_

#include <chrono>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "model/base/mutex.h"

namespace tlm {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() = 0;

  // Both live for ever. What lasts, waits or is due is told by the monotonic one, which nobody
  // sets: its times mean nothing but their differences.
  static Clock* Monotonic() {
    class MonotonicClock : public Clock {
      absl::Time Now() override {
        return absl::UnixEpoch() +
               absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
      }
    };
    static MonotonicClock* const clock = new MonotonicClock;
    return clock;
  }
  // The date, for what expires on one and for people.
  static Clock* Wall() {
    class WallClock : public Clock {
      absl::Time Now() override { return absl::Now(); }
    };
    static WallClock* const clock = new WallClock;
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
