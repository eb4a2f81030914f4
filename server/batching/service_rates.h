// Measures how fast the engine has been lately, and estimates from that how long coming work takes.
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

  // Time passes that does not count: the average stays, and weighs less against later events.
  void Fade(absl::Duration elapsed) {
    if (!(elapsed >= absl::ZeroDuration())) return;
    const double kept = std::exp(-absl::ToDoubleSeconds(elapsed) / memory_seconds_);
    events_ *= kept;
    seconds_ *= kept;
  }

  // 0 while nothing is known.
  double per_second() const { return seconds_ > 0 ? events_ / seconds_ : 0; }
  // Returns the recorded time that has not faded: the weight of the average.
  absl::Duration known() const { return absl::Seconds(seconds_); }

 private:
  double memory_seconds_;
  double events_ = 0;
  double seconds_ = 0;
};

// Requests that wait, or that may.
struct QueueLoad {
  int64_t requests = 0;
  int64_t prompt_tokens = 0;  // InputTokens of the requests
};

// The least that must be computed before a request can end well.
struct LeastWork {
  int64_t prefill_tokens = 0;
  int64_t decode_steps = 0;  // in sequence, after the prefill
};

// Returns the least work of `request`, whose first `cached_tokens` tokens need not be computed.
// Generate: the prompt and max(1, min_new_tokens) tokens; Forward: up to the last position; Score:
// everything. Zero when the soft deadline is before the hard one, since the request then ends well
// without any work.
LeastWork LeastWorkOf(const Request& request, int64_t cached_tokens);

// The shortest recent duration: a shorter one counts at once, longer ones take over gradually. Not
// thread-safe.
class WindowedMin {
 public:
  // Records a duration; the earlier, shorter ones fade with `elapsed`.
  void Record(double seconds, absl::Duration elapsed);
  // 0 before kMinSamples measurements: the first ones of a process are often slow.
  double seconds() const { return samples_ < kMinSamples ? 0 : fastest_; }

 private:
  static constexpr int kMinSamples = 3;
  static constexpr double kMemorySeconds = 30;
  double fastest_ = 0;
  int samples_ = 0;
};

// A snapshot of ServiceRates that other threads may read. Nothing is known before it was measured;
// unknown work takes no time.
class ServiceEstimates {
 public:
  // Returns how long it takes until `ahead` has started, by the rate at which waiting requests
  // started while some had to wait. Each request counts at most the longest recent time without a
  // start; prompts longer than the measured ones add the time to compute them. Zero for an empty
  // `ahead`, and when no request was waiting after the last step.
  absl::Duration QueueTime(const QueueLoad& ahead) const;
  // Returns the time in which a queue that is never empty starts one request; zero: unknown.
  absl::Duration TimePerRequest() const;
  absl::Duration TimeForTokens(int64_t prompt_tokens) const;

  // Returns a lower bound: the time of `work` alone at the fastest recent rate. It shrinks while
  // nothing is measured, so that an estimate that keeps all work away does not last.
  absl::Duration LeastTime(const LeastWork& work, absl::Time now) const;
  // Returns whether `ahead` and then `work` clearly cannot be done by `deadline`, not even at
  // kMargin times the measured rate.
  bool Unreachable(const QueueLoad& ahead, const LeastWork& work, absl::Time now,
                   absl::Time deadline) const;
  static constexpr double kMargin = 2;

  // Returns the likely time of a request from its first step on, among as many others as lately;
  // zero: unknown.
  absl::Duration LikelyTime(const Request& request) const;

  // Return how fast waiting work started while some had to wait; 0: unknown.
  double drained_requests_per_second() const { return requests_per_second_; }
  double drained_prompt_tokens_per_second() const { return prompt_tokens_per_second_; }
  // Averages over the last seconds, idle ones included.
  double PrefillTokensPerSecond(absl::Time now) const;
  double DecodeTokensPerSecond(absl::Time now) const;

 private:
  friend class ServiceRates;
  // Return the time until waiting work has started, by its number of requests and by its tokens.
  double SecondsForRequests(int64_t requests) const;
  double SecondsForTokens(const QueueLoad& ahead) const;
  double PrefillSeconds(int64_t tokens) const;
  double LeastSeconds(const LeastWork& work, absl::Time now) const;

  int64_t max_prefill_tokens_ = 1;
  absl::Time measured_ = absl::InfinitePast();  // end of the last step
  double fastest_token_seconds_ = 0;            // per token of a prefill
  int64_t largest_prefill_ = 0;                 // most prefill tokens of a measured step
  double largest_prefill_seconds_ = 0;
  double fastest_step_seconds_ = 0;  // seconds of steps that decoded
  double mean_step_seconds_ = 0;     // seconds of steps that decoded
  double requests_per_second_ = 0;
  double prompt_tokens_per_second_ = 0;
  double longest_pause_seconds_ = 0;  // recently, between two starts
  bool backlog_ = false;              // some had to wait when the last step ended
  RateMeter prefill_tokens_;
  RateMeter decode_tokens_;
  double output_share_ = 0;  // used part of max_new_tokens of outputs
};

// Measures the engine's steps; the engine loop feeds it. Not thread-safe; has no clock of its own.
class ServiceRates {
 public:
  // `max_prefill_tokens`: the most tokens that one step prefills.
  explicit ServiceRates(int64_t max_prefill_tokens);

  // The tokens of one step, and the time from the end of the previous step (or, after a pause, from
  // its own start) to its end, `now`.
  struct Step {
    int64_t prefill_tokens = 0;
    int64_t decode_tokens = 0;
    absl::Duration elapsed;
  };
  void RecordStep(const Step& step, absl::Time now);

  // The same step started the requests `started`, which the queue had counted as waiting; `waiting`
  // requests still wait. Call once for each step, also when it started none.
  void RecordDrain(const QueueLoad& started, int64_t waiting, absl::Duration elapsed);

  // An output ended well with `tokens` of at most `max_new_tokens` tokens.
  void RecordOutput(int64_t tokens, int64_t max_new_tokens);
  // The deadline of a started output passed. Counts as an output that used all of max_new_tokens:
  // when many outputs miss their deadline, the estimates were too short.
  void RecordLateOutput();

  ServiceEstimates Estimates() const;

 private:
  void RecordPause(int64_t started, absl::Duration elapsed);

  static constexpr absl::Duration kMemory = absl::Seconds(5);
  // Long, because requests that start together also end together, and so start in bursts.
  static constexpr absl::Duration kDrainMemory = absl::Seconds(10);
  // Rates measured over less time than this are unknown, also when the older part has faded.
  static constexpr absl::Duration kMinDrain = absl::Milliseconds(200);
  static constexpr size_t kSizes = 24;

  const int64_t max_prefill_tokens_;
  absl::Time measured_ = absl::InfinitePast();
  // Seconds per token, by steps with [2^i, 2^(i+1)) prefill tokens.
  std::array<WindowedMin, kSizes> fastest_token_;
  WindowedMin fastest_step_;
  RateMeter decode_steps_{kMemory};  // over the time of steps that decoded
  RateMeter prefill_tokens_{kMemory};
  RateMeter decode_tokens_{kMemory};
  RateMeter drained_requests_{kDrainMemory};
  RateMeter drained_tokens_{kDrainMemory};
  bool backlog_ = false;          // some had to wait when the last step began
  absl::Duration pause_;          // time with a backlog since the last start
  absl::Duration longest_pause_;  // longest ended pause; fades
  double output_share_ = 0;
  int64_t outputs_ = 0;
};

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_SERVICE_RATES_H_
