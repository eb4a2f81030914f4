// Limits of constraints, and what compiling one may still take.
#ifndef TLM_MODEL_CONSTRAINT_BYTES_BUDGET_H_
#define TLM_MODEL_CONSTRAINT_BYTES_BUDGET_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "model/base/clock.h"
#include "model/base/errors.h"

namespace tlm {

struct ConstraintLimits {
  size_t max_text_bytes = size_t{1} << 20;  // of all texts of a specification together
  size_t max_states = 200'000;
  size_t max_bytes = size_t{64} << 20;                        // memory of a compiled constraint
  absl::Duration max_compile_time = absl::Milliseconds(250);  // CPU time of the compiling thread
};

// Compilers spend it wherever the work depends on the specification: in every loop and recursion.
// Not thread-safe, but for `cancelled`.
class Budget {
 public:
  // The time runs from here on. `cancelled` may be null; it and the clock outlive this.
  Budget(absl::Duration time, const std::atomic<bool>* cancelled, Clock* clock = Clock::Monotonic())
      : time_(time), cancelled_(cancelled), clock_(clock), end_(clock->Now() + time) {}

  // For so many steps of about 0.1 us. `what` costs them: a construct and its place. CANCELLED and
  // RESOURCE_EXHAUSTED; then every later call fails, too.
  absl::Status Spend(int64_t steps, std::string_view what) {
    until_look_ -= steps;
    return until_look_ > 0 ? absl::OkStatus() : Look(what);
  }

 private:
  static constexpr int64_t kStepsBetweenLooks = 1000;

  absl::Status Look(std::string_view what) {
    if (cancelled_ != nullptr && cancelled_->load(std::memory_order_relaxed)) {
      return Cancelled("compiling the constraint was cancelled at {}", what);
    }
    if (clock_->Now() >= end_) {
      return ResourceExhausted("compiling the constraint takes longer than the limit of {}, at {}",
                               absl::FormatDuration(time_), what);
    }
    until_look_ = kStepsBetweenLooks;
    return absl::OkStatus();
  }

  const absl::Duration time_;
  const std::atomic<bool>* const cancelled_;
  Clock* const clock_;
  const absl::Time end_;
  int64_t until_look_ = 0;  // steps
};

// What may be worked out in an expression set or another store that grows while it is used. Not
// thread-safe.
class WorkMeter {
 public:
  // From here on so many steps of about 0.1 us; each is spent of `budget`, too, unless it is null.
  void Allow(int64_t steps, Budget* budget = nullptr) {
    left_ = steps;
    budget_ = budget;
  }
  // False once there are none left.
  bool Spend(int64_t steps) {
    left_ -= steps;
    return left_ >= 0 && (budget_ == nullptr || budget_->Spend(steps, "its first state").ok());
  }

 private:
  int64_t left_ = std::numeric_limits<int64_t>::max();
  Budget* budget_ = nullptr;
};

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_BYTES_BUDGET_H_
