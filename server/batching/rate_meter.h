// Events per second over the recent past.
#ifndef TLM_SERVER_BATCHING_RATE_METER_H_
#define TLM_SERVER_BATCHING_RATE_METER_H_

#include <cmath>

#include "absl/time/time.h"

namespace tlm {

// An average whose memory fades by 1/e every kMemorySeconds. Not thread-safe.
class RateMeter {
 public:
  void Record(double events, absl::Duration elapsed) {
    const double seconds = absl::ToDoubleSeconds(elapsed);
    if (!(seconds >= 0)) return;  // the wall clock was set back
    const double kept = std::exp(-seconds / kMemorySeconds);
    events_ = events_ * kept + events;
    seconds_ = seconds_ * kept + seconds;
  }

  // 0 while nothing is known.
  double per_second() const { return seconds_ > 0 ? events_ / seconds_ : 0; }

 private:
  static constexpr double kMemorySeconds = 10;
  double events_ = 0;
  double seconds_ = 0;
};

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_RATE_METER_H_
