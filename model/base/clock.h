// Time as a dependency: production passes one of the real clocks, tests pass a FakeClock.
#ifndef TLM_MODEL_BASE_CLOCK_H_
#define TLM_MODEL_BASE_CLOCK_H_

#include <time.h>

#include <chrono>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tlm {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() = 0;

  // The real clocks live forever. This one is for durations, timeouts and deadlines: only
  // differences of its times are meaningful.
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
  // Measures the processor time of the calling thread: other programs and threads do not count.
  // Only differences of one thread's times are meaningful.
  static Clock* ThreadCpu() {
    class ThreadCpuClock : public Clock {
      absl::Time Now() override {
        timespec time{};
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
        return absl::TimeFromTimespec(time);
      }
    };
    static ThreadCpuClock* const clock = new ThreadCpuClock;
    return clock;
  }
  // Returns the date, for expiry dates and for display.
  static Clock* Wall() {
    class WallClock : public Clock {
      absl::Time Now() override { return absl::Now(); }
    };
    static WallClock* const clock = new WallClock;
    return clock;
  }
};

}  // namespace tlm

#endif  // TLM_MODEL_BASE_CLOCK_H_
