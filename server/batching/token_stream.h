// The bounded queue of one output's results: the engine pushes, the call's handler takes.
#ifndef TLM_SERVER_BATCHING_TOKEN_STREAM_H_
#define TLM_SERVER_BATCHING_TOKEN_STREAM_H_

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "model/base/mutex.h"
#include "model/sampling/sampler.h"

namespace tlm {

// Told on the delivery thread that a token stream has new results. Must not block.
class StreamListener {
 public:
  virtual ~StreamListener() = default;
  virtual void OnStreamReady() = 0;
};

// Told that a token stream has room again or that its reader detached: there may be work for the
// engine. Called from any thread, without locks held. Must not block.
class StreamWaker {
 public:
  virtual ~StreamWaker() = default;
  virtual void Wake() = 0;
};

enum class FinishReason {
  kEos,
  kStopToken,
  kLength,
  kContextLength,
  kTimeLimit,
  kConstraint,          // nothing may follow, and the text is not whole
  kConstraintComplete,  // nothing may follow, not even an end token, and the text is whole
  kRowsComplete,
};

// Logits of one position of a Forward request.
struct LogitsRow {
  int64_t position = 0;
  std::vector<float> logits;  // [vocab_size]
};

// What the model thinks of a token that was given, not sampled.
struct ScoredEntry {
  int64_t index = 0;  // generate: the token's position in the prompt; score: the continuation
  SampledToken token;
};

struct StreamStart {
  absl::Duration queue_time;         // from arrival to the first step that computes it
  int64_t cached_prompt_tokens = 0;  // taken from the prefix cache, the prompt's own alone
};

// What guessing has saved an output.
struct SpeculationCounts {
  int64_t drafted = 0;      // tokens guessed and computed
  int64_t accepted = 0;     // of them: drawn as guessed, and part of the output
  int64_t steps_saved = 0;  // fewer than without guesses
};

// How an output ended. `reason` and `matched_token` count only when `status` is OK. What several
// outputs of a request share, the prompt's computation and its blocks, is in the first one's end.
struct StreamEnd {
  absl::Status status;
  FinishReason reason = FinishReason::kLength;
  int32_t matched_token = -1;   // the stop or eos id
  absl::Duration queue_time;    // arrival to first step
  absl::Duration prefill_time;  // first step to first token (or last row)
  absl::Duration decode_time;   // first token to the end
  int64_t computed_prompt_tokens = 0;
  int64_t kv_blocks_peak = 0;
  int64_t preemptions = 0;
  int64_t steps = 0;  // it took part in
  // Generate: tokens that needed no draw, and how many of them ended it before they were computed.
  int64_t forced_tokens = 0;
  int64_t uncomputed_tokens = 0;
  SpeculationCounts speculation;
};

// Thread-safe. Two sides: the engine pushes, the handler takes; either may let go first. Pushing
// never blocks and never calls the listener (Delivery does that, on its own thread).
class TokenStream {
 public:
  // Everything that arrived since the last Take, in order.
  struct Pending {
    std::optional<StreamStart> start;
    std::vector<SampledToken> tokens;  // the matched stop or eos token included, last
    std::vector<LogitsRow> rows;
    std::vector<ScoredEntry> scored;  // those of one index in the order of their positions
    std::optional<StreamEnd> end;     // nothing follows
  };

  static constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max();

  // `capacity`: results (tokens, rows and scored entries together) the stream holds before Room()
  // is 0. Its sequence is then parked: no other sequence waits for it.
  explicit TokenStream(std::weak_ptr<StreamListener> listener, int64_t capacity = kUnbounded);

  // Handler's side.
  Pending Take();
  // The handler wants nothing more: the engine drops the sequence and frees its blocks at its next
  // step, whatever state it is in. Idempotent.
  void Detach();

  // Engine's side.
  // Detach, and Take when the stream was full, wake it from now on. The caller looks at
  // detached() and Room() afterwards: what happened before does not wake it.
  void SetWaker(std::weak_ptr<StreamWaker> waker);
  bool detached() const { return detached_.load(std::memory_order_acquire); }
  // Results that may be pushed; only pushing makes it smaller. A Score request's stream is
  // unbounded: one row gives several results.
  int64_t Room() const { return capacity_ - held_.load(std::memory_order_acquire); }
  void PushStart(const StreamStart& start);
  void PushToken(SampledToken token);
  void PushRow(LogitsRow row);
  void PushScored(ScoredEntry entry);
  // The last call of the engine's side, once.
  void PushEnd(StreamEnd end);

  // Delivery's side.
  // The listener is to be called; false when that was due already.
  bool MarkDue() { return !due_.exchange(true, std::memory_order_acq_rel); }
  // The call begins: what is pushed from now on makes another one due.
  void ClearDue() { due_.exchange(false, std::memory_order_acq_rel); }
  std::shared_ptr<StreamListener> listener() const { return listener_.lock(); }

 private:
  // There must be room.
  void Hold() TLM_REQUIRES(mutex_);

  // Weak: the handler may be gone before the engine notices.
  const std::weak_ptr<StreamListener> listener_;
  const int64_t capacity_;
  std::atomic<bool> detached_{false};
  std::atomic<bool> due_{false};
  Mutex mutex_;
  Pending pending_ TLM_GUARDED_BY(mutex_);
  // Results in pending_. Written with the mutex, read without: the engine asks in every step.
  std::atomic<int64_t> held_{0};
  bool ended_ TLM_GUARDED_BY(mutex_) = false;
  // Weak: a handler may keep the stream longer than the engine lives.
  std::weak_ptr<StreamWaker> waker_ TLM_GUARDED_BY(mutex_);
};

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_TOKEN_STREAM_H_
