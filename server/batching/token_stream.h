// Holds one output's results in a bounded queue: the engine pushes, the call's handler takes.
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
#include "server/batching/stop_criteria.h"

namespace tlm {

// Called on the delivery thread when a token stream has new results. Must not block.
class StreamListener {
 public:
  virtual ~StreamListener() = default;
  virtual void OnStreamReady() = 0;
};

// Called when a token stream has room again or its reader detached: there may be work for the
// engine. Called from any thread, without locks held. Must not block.
class StreamWaker {
 public:
  virtual ~StreamWaker() = default;
  virtual void Wake() = 0;
};

// Logits of one position of a Forward request.
struct LogitsRow {
  int64_t position = 0;
  std::vector<float> logits;  // [vocab_size]
};

// The model's score of a token that was given, not sampled.
struct ScoredEntry {
  int64_t index = 0;  // generate: the token's position in the prompt; score: the continuation
  SampledToken token;
};

struct StreamStart {
  absl::Duration queue_time;         // from arrival to the first step that computes it
  int64_t cached_prompt_tokens = 0;  // taken from the prefix cache, prompt tokens only
};

// The effect of guessing on one output.
struct SpeculationCounts {
  int64_t drafted = 0;      // tokens guessed and computed
  int64_t accepted = 0;     // drafted tokens that were sampled and are part of the output
  int64_t steps_saved = 0;  // compared with no guesses
};

// How an output ended. `reason` and `matched_token` count only when `status` is OK. The shared work
// of several outputs (the prompt's computation and its blocks) is in the end of the first one.
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
  int64_t steps = 0;  // steps that computed a part of it
  // Generate: tokens that needed no sampling, and how many of them ended the output before they
  // were computed.
  int64_t forced_tokens = 0;
  int64_t uncomputed_tokens = 0;
  SpeculationCounts speculation;
};

// Thread-safe. The engine pushes, the handler takes; either may release it first. Pushing never
// blocks and never calls the listener (Delivery does, on its own thread).
class TokenStream {
 public:
  // Everything that arrived since the last Take, in order.
  struct Pending {
    std::optional<StreamStart> start;
    std::vector<SampledToken> tokens;  // the matched stop or eos token included, last
    std::vector<LogitsRow> rows;
    std::vector<ScoredEntry> scored;  // entries of one index ascend by position
    std::optional<StreamEnd> end;     // nothing follows it
  };

  static constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max();

  // `capacity`: the results (tokens, rows and scored entries together) that the stream holds before
  // Room() is 0. Its sequence is then parked; no other sequence waits for it.
  explicit TokenStream(std::weak_ptr<StreamListener> listener, int64_t capacity = kUnbounded);

  // The handler's side.
  Pending Take();
  // The handler wants nothing more. At its next step the engine drops the sequence in any state and
  // frees its blocks. Idempotent.
  void Detach();

  // The engine's side.
  // From now on Detach, and a Take from a full stream, wake `waker`. The caller checks detached()
  // and Room() afterwards: earlier events do not wake it.
  void SetWaker(std::weak_ptr<StreamWaker> waker);
  bool detached() const { return detached_.load(std::memory_order_acquire); }
  // Returns the number of results that may be pushed; only pushing reduces it. The stream of a
  // Score request is unbounded, because one row gives several results.
  int64_t Room() const { return capacity_ - held_.load(std::memory_order_acquire); }
  void PushStart(const StreamStart& start);
  void PushToken(SampledToken token);
  void PushRow(LogitsRow row);
  void PushScored(ScoredEntry entry);
  // The engine's last call, made once.
  void PushEnd(StreamEnd end);

  // Delivery's side.
  // Marks a listener call as due; false when it was due already.
  bool MarkDue() { return !due_.exchange(true, std::memory_order_acq_rel); }
  // The call begins: results pushed from now on make another one due.
  void ClearDue() { due_.exchange(false, std::memory_order_acq_rel); }
  std::shared_ptr<StreamListener> listener() const { return listener_.lock(); }

 private:
  // Requires room.
  void Hold() TLM_REQUIRES(mutex_);

  // Weak: the handler may be gone before the engine notices.
  const std::weak_ptr<StreamListener> listener_;
  const int64_t capacity_;
  std::atomic<bool> detached_{false};
  std::atomic<bool> due_{false};
  Mutex mutex_;
  Pending pending_ TLM_GUARDED_BY(mutex_);
  // The number of results in pending_. Written with the mutex, read without it: the engine reads it
  // in every step.
  std::atomic<int64_t> held_{0};
  bool ended_ TLM_GUARDED_BY(mutex_) = false;
  // Weak: a handler may keep the stream longer than the engine lives.
  std::weak_ptr<StreamWaker> waker_ TLM_GUARDED_BY(mutex_);
};

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_TOKEN_STREAM_H_
