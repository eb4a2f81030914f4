// Events per second over the recent past.
#ifndef TLM_SERVER_BATCHING_RATE_METER_H_
#define TLM_SERVER_BATCHING_RATE_METER_H_

#include <cmath>

#include "absl/time/time.h"

namespace tlm {

// An average whose memory fades by 1/e every `memory`. Not thread-safe.
class RateMeter {
 public:
  explicit RateMeter(absl::Duration memory = absl::Seconds(10))
      : memory_seconds_(absl::ToDoubleSeconds(memory)) {}

  void Record(double events, absl::Duration elapsed) {
    if (!(elapsed >= absl::ZeroDuration())) return;  // measures nothing
    Fade(elapsed);
    events_ += events;
    seconds_ += absl::ToDoubleSeconds(elapsed);
  }

  // Time that is not to be counted passed: the average stays, and weighs less against what follows.
  void Fade(absl::Duration elapsed) {
    if (!(elapsed >= absl::ZeroDuration())) return;
    const double kept = std::exp(-absl::ToDoubleSeconds(elapsed) / memory_seconds_);
    events_ *= kept;
    seconds_ *= kept;
  }

  // 0 while nothing is known.
  double per_second() const { return seconds_ > 0 ? events_ / seconds_ : 0; }
  // Of the time that was recorded, what is not forgotten yet: how much the average is worth.
  absl::Duration known() const { return absl::Seconds(seconds_); }

 private:
  double memory_seconds_;
  double events_ = 0;
  double seconds_ = 0;
};

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_RATE_METER_H_
