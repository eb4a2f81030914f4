// How fast the engine has been lately, and what that says about work that is still to come.
#ifndef TLM_SERVER_BATCHING_SERVICE_RATES_H_
#define TLM_SERVER_BATCHING_SERVICE_RATES_H_

#include <array>
#include <cmath>
#include <cstdint>

#include "absl/time/time.h"
#include "server/batching/request.h"

namespace tlm {

// Events per second over the recent past: an average whose memory fades by 1/e every `memory`. Not
// thread-safe.
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

// What is waiting, or may wait.
struct QueueLoad {
  int64_t requests = 0;
  int64_t prompt_tokens = 0;  // InputTokens of the requests
};

// The least that must be computed before a request can end well.
struct LeastWork {
  int64_t prefill_tokens = 0;
  int64_t decode_steps = 0;  // one after the other, behind the prefill
};

// Of a whole request, the first `cached_tokens` of which need not be computed. Generate: the prompt
// and max(1, min_new_tokens) tokens; Forward: up to the last position; Score: everything. Nothing
// when the soft deadline, before the hard one, ends it well as it is.
LeastWork LeastWorkOf(const Request& request, int64_t cached_tokens);

// The fastest of what was measured lately: a faster measurement counts at once, slower ones take
// over gradually. Not thread-safe.
class WindowedMin {
 public:
  // Something took `seconds`; the slower past fades with `elapsed`.
  void Record(double seconds, absl::Duration elapsed);
  // 0 before kMinSamples measurements: the first ones of a process are often slow.
  double seconds() const { return samples_ < kMinSamples ? 0 : fastest_; }

 private:
  static constexpr int kMinSamples = 3;
  static constexpr double kMemorySeconds = 30;
  double fastest_ = 0;
  int samples_ = 0;
};

// What ServiceRates knows at one moment: a value that other threads may read. Nothing is known
// before it was measured; what is not known takes no time.
class ServiceEstimates {
 public:
  // How long `ahead` takes to be started, by the pace at which waiting requests were started while
  // some had to wait: no more for each than the longest time lately in which none was started, and
  // for prompts that are longer than those were, what computing them takes. Zero for nothing, and
  // when the last step left no request waiting.
  absl::Duration QueueTime(const QueueLoad& ahead) const;
  // How long one more request takes to leave a queue that is never empty; zero: not known.
  absl::Duration TimePerRequest() const;
  absl::Duration TimeForTokens(int64_t prompt_tokens) const;

  // A lower bound: the time that `work` takes alone at the fastest pace lately. It shrinks while
  // nothing is measured, so that an estimate that keeps all work away does not last.
  absl::Duration LeastTime(const LeastWork& work, absl::Time now) const;
  // Whether `ahead`, then `work`, are clearly not done by `deadline`: not even at kMargin times the
  // pace that was measured.
  bool Unreachable(const QueueLoad& ahead, const LeastWork& work, absl::Time now,
                   absl::Time deadline) const;
  static constexpr double kMargin = 2;

  // What a request will probably take from its first step on, among as many others as lately;
  // zero: not known.
  absl::Duration LikelyTime(const Request& request) const;

  // How fast waiting work was started while some had to wait; 0: not known.
  double drained_requests_per_second() const { return requests_per_second_; }
  double drained_prompt_tokens_per_second() const { return prompt_tokens_per_second_; }
  // Computed over the last seconds, idle ones included.
  double PrefillTokensPerSecond(absl::Time now) const;
  double DecodeTokensPerSecond(absl::Time now) const;

 private:
  friend class ServiceRates;
  // Of the waiting, by their number and by their tokens.
  double SecondsForRequests(int64_t requests) const;
  double SecondsForTokens(const QueueLoad& ahead) const;
  double PrefillSeconds(int64_t tokens) const;
  double LeastSeconds(const LeastWork& work, absl::Time now) const;

  int64_t max_prefill_tokens_ = 1;
  absl::Time measured_ = absl::InfinitePast();  // the last step
  double fastest_token_seconds_ = 0;            // of a prefill
  int64_t largest_prefill_ = 0;                 // tokens of a step, of those measured, and
  double largest_prefill_seconds_ = 0;
  double fastest_step_seconds_ = 0;  // that decoded
  double mean_step_seconds_ = 0;     // that decoded
  double requests_per_second_ = 0;
  double prompt_tokens_per_second_ = 0;
  double longest_pause_seconds_ = 0;  // between requests that were started, lately
  bool backlog_ = false;              // some had to wait when the last step ended
  RateMeter prefill_tokens_;
  RateMeter decode_tokens_;
  double output_share_ = 0;  // of max_new_tokens that outputs used
};

// Fed by the engine loop. Without a clock of its own; not thread-safe.
class ServiceRates {
 public:
  // `max_prefill_tokens`: the most that one step prefills.
  explicit ServiceRates(int64_t max_prefill_tokens);

  // What one step computed, and the time from the end of the one before it (or, after a pause, from
  // its own beginning) to its end, `now`.
  struct Step {
    int64_t prefill_tokens = 0;
    int64_t decode_tokens = 0;
    absl::Duration elapsed;
  };
  void RecordStep(const Step& step, absl::Time now);

  // In the same step `started` requests were started that the queue had counted as waiting, and
  // `waiting` of those it counts still wait. Once a step, with those that started none.
  void RecordDrain(const QueueLoad& started, int64_t waiting, absl::Duration elapsed);

  // An output ended well, with this many tokens of at most `max_new_tokens`.
  void RecordOutput(int64_t tokens, int64_t max_new_tokens);
  // An output was begun and its deadline passed. It counts as one that takes all that it may: where
  // much is begun in vain, too little was allowed for.
  void RecordLateOutput();

  ServiceEstimates Estimates() const;

 private:
  void RecordPause(int64_t started, absl::Duration elapsed);

  static constexpr absl::Duration kMemory = absl::Seconds(5);
  // Requests start in bursts where many began, and so end, together.
  static constexpr absl::Duration kDrainMemory = absl::Seconds(10);
  // A pace that was measured for a shorter time than this, or so long ago that no more of it is
  // remembered, is not known.
  static constexpr absl::Duration kMinDrain = absl::Milliseconds(200);
  static constexpr size_t kSizes = 24;

  const int64_t max_prefill_tokens_;
  absl::Time measured_ = absl::InfinitePast();
  // By the token, of steps with [2^i, 2^(i+1)) tokens to prefill.
  std::array<WindowedMin, kSizes> fastest_token_;
  WindowedMin fastest_step_;
  RateMeter decode_steps_{kMemory};  // in the time of steps that decoded
  RateMeter prefill_tokens_{kMemory};
  RateMeter decode_tokens_{kMemory};
  RateMeter drained_requests_{kDrainMemory};
  RateMeter drained_tokens_{kDrainMemory};
  bool backlog_ = false;          // some had to wait when the last step began
  absl::Duration pause_;          // of that time, since the last one was started
  absl::Duration longest_pause_;  // that has ended; fades
  double output_share_ = 0;
  int64_t outputs_ = 0;
};

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_SERVICE_RATES_H_
