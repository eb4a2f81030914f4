// Limits of constraints, and the time and work that remain within them.
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
  size_t max_text_bytes = size_t{1} << 20;  // bytes of all texts of a specification together
  size_t max_states = 200'000;
  size_t max_bytes = size_t{64} << 20;                        // memory of a compiled constraint
  absl::Duration max_compile_time = absl::Milliseconds(250);  // CPU time of the compiling thread
};

// The time that remains to compile a constraint. Compilers call Spend wherever the work depends on
// the specification: in every loop and recursion. Not thread-safe, except for `cancelled`.
class Budget {
 public:
  // The time starts now. `cancelled` may be null; it and the clock must outlive the budget.
  Budget(absl::Duration time, const std::atomic<bool>* cancelled, Clock* clock = Clock::Monotonic())
      : time_(time), cancelled_(cancelled), clock_(clock), end_(clock->Now() + time) {}

  // Spends `steps` of about 0.1 us. `what` is the construct that costs them and its place, for the
  // message. Fails with CANCELLED or RESOURCE_EXHAUSTED; then every later call fails, too.
  absl::Status Spend(int64_t steps, std::string_view what) {
    until_check_ -= steps;
    return until_check_ > 0 ? absl::OkStatus() : Check(what);
  }

 private:
  static constexpr int64_t kStepsBetweenChecks = 1000;

  absl::Status Check(std::string_view what) {
    if (cancelled_ != nullptr && cancelled_->load(std::memory_order_relaxed)) {
      return Cancelled("compiling the constraint was cancelled at {}", what);
    }
    if (clock_->Now() >= end_) {
      return ResourceExhausted("compiling the constraint takes longer than the limit of {}, at {}",
                               absl::FormatDuration(time_), what);
    }
    until_check_ = kStepsBetweenChecks;
    return absl::OkStatus();
  }

  const absl::Duration time_;
  const std::atomic<bool>* const cancelled_;
  Clock* const clock_;
  const absl::Time end_;
  int64_t until_check_ = 0;  // steps
};

// The work that remains for a store that grows with use, such as a RegexSet. Not thread-safe.
class WorkMeter {
 public:
  // Allows `steps` of about 0.1 us from now on. Each is also spent from `budget` unless it is null.
  void Allow(int64_t steps, Budget* budget = nullptr) {
    left_ = steps;
    budget_ = budget;
  }
  // Returns false once all allowed steps are spent.
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
