// Computes the token masks of constrained outputs on separate threads, one token ahead.
#ifndef TLM_SERVER_BATCHING_OUTPUT_MASK_H_
#define TLM_SERVER_BATCHING_OUTPUT_MASK_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "model/base/mutex.h"
#include "model/constraint/constraint.h"
#include "model/sampling/sampling_job.h"
#include "server/batching/token_stream.h"

namespace tlm {

struct OutputConstraint;
class DraftMasks;

// The mask of the tokens that may follow one output's current tokens.
//
//   [a thread of MaskPool: Compute] -> ready: run(), whole(), Await() -> Advance(tokens) -> Compute
//
// Only one thread, the engine's, calls the functions other than Await and Compute.
class OutputMask final : public TokenMask {
 public:
  struct Options {
    // Compute runs of several forced tokens, not only the next one.
    bool runs = true;
    absl::Duration max_wait;  // the longest wait of a sampling job
  };
  // The most tokens of a run.
  static constexpr size_t kMaxRun = 64;

  // Starts at the constraint's position; `whole` if the text may end there. Not ready until
  // Compute.
  OutputMask(const OutputConstraint& constraint, const Options& options, bool whole = false);

  const Options& options() const { return options_; }
  bool ready() const { return ready_.load(std::memory_order_acquire); }
  // When ready, returns the next tokens that are known without sampling; the mask allows the first
  // of them. Empty without Options::runs.
  std::span<const int32_t> run() const { return std::span(run_).subspan(run_begin_); }
  // The text may end here.
  bool whole() const;
  // Appends `token` to the output; if the mask is ready, it must allow it. True: the mask is ready
  // for the next token. False: Compute is needed, once after the last of several tokens. Not while
  // Compute runs.
  bool Advance(int32_t token);
  // Waits until the mask is ready, at most `time`; returns whether it is.
  bool WaitFor(absl::Duration time) const;
  // Returns true if the mask is not ready; `waker` is then woken once it is.
  bool WakeWhenReady(std::shared_ptr<StreamWaker> waker);
  // Returns the longest time since the last call that a job has waited for this mask or one of its
  // DraftMasks.
  absl::Duration TakeWait() { return absl::Nanoseconds(wait_ns_.exchange(0)); }

  // TokenMask.
  std::optional<std::span<const uint64_t>> Await() const override;

  // Computes the mask, once each time one is needed. Returns the DraftMasks that waited for it and
  // can now be computed.
  std::vector<std::weak_ptr<DraftMasks>> Compute();

 private:
  friend class DraftMasks;
  friend class MaskPool;
  // A copy of the state when ready.
  struct Known {
    std::vector<int32_t> run;
    std::vector<uint64_t> first;  // the mask
    ConstraintMatcher matcher;    // after the run
    bool whole;                   // after the run
    std::vector<uint64_t> after;  // the mask after the run
  };

  // Callable from any thread: nullopt if not ready.
  std::optional<Known> KnownNow() const;
  // Returns true if not ready; Compute then returns `masks`.
  bool LetWait(std::weak_ptr<DraftMasks> masks);
  // Callable from any thread: true when a job has timed out waiting and the mask is still not
  // ready.
  bool IsLate() const { return late_.load() && !ready(); }
  void NoteWait(int64_t nanoseconds) const;
  void ShowFirstOfRun();

  const Options options_;
  const std::vector<int32_t> end_ids_;
  ConstraintMatcher matcher_;
  std::vector<int32_t> pending_;  // tokens that matcher_ has not accepted yet
  std::vector<int32_t> run_;
  size_t run_begin_ = 0;         // run tokens before it are in the output
  bool whole_;                   // after the run
  std::vector<uint64_t> after_;  // the mask after the run
  std::vector<uint64_t> first_;  // has only the bit of the run's next token

  std::atomic<bool> ready_{false};
  std::atomic<uint64_t> advances_{0};  // calls of Advance, which takes the lock
  mutable std::atomic<bool> late_{false};
  mutable std::atomic<int64_t> wait_ns_{0};
  mutable Mutex mutex_;
  mutable CondVar changed_;
  std::shared_ptr<StreamWaker> waker_ TLM_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<DraftMasks>> waiting_ TLM_GUARDED_BY(mutex_);
};

// The masks after the tokens of a draft: each is the mask that `base` would have if the output had
// these tokens. They are computed in order.
//
// A mask stays unknown, and its Await() returns nullopt at once, when nothing will be sampled with
// it: after a token that is not allowed or ends the output; once the output has got a token; once a
// job has timed out waiting for an earlier mask or for the base. Thread-safe, except for
// ComputeNext.
class DraftMasks {
 public:
  // Call on the engine's thread.
  DraftMasks(std::shared_ptr<OutputMask> base, std::vector<int32_t> draft);
  DraftMasks(const DraftMasks&) = delete;
  DraftMasks& operator=(const DraftMasks&) = delete;

  // Returns the mask after the first `count` tokens of the draft, 1 to all; valid as long as this
  // object. A job waits for it as long as for the base.
  const TokenMask* mask(size_t count) const { return &masks_[count - 1]; }
  // Returns whether the text may end after the first `count` tokens; valid when their mask is
  // known.
  bool whole(size_t count) const { return masks_[count - 1].whole; }

  // Computes one more mask; false if it was the last one. Called by one thread at a time when the
  // base is ready; with an unready base all masks stay unknown.
  bool ComputeNext();

 private:
  friend class MaskPool;
  struct Mask final : TokenMask {
    std::optional<std::span<const uint64_t>> Await() const override;

    const DraftMasks* draft = nullptr;
    size_t count = 0;
    std::vector<uint64_t> words;
    bool whole = false;
  };

  // Computes the mask after draft token `count` (from 0); false if it has no use.
  bool Find(size_t count);
  // Waits for the mask after `count` tokens; false if it stays unknown.
  bool WaitFor(size_t count) const;
  void End();

  // Shared with the sequence, which may end before the step does.
  const std::shared_ptr<OutputMask> base_;
  const uint64_t advances_;  // the base's count before the draft
  const std::vector<int32_t> draft_;
  std::vector<Mask> masks_;                 // one after each token
  std::optional<OutputMask::Known> known_;  // its matcher is after the last token with a mask
  std::atomic<size_t> found_{0};            // number of computed masks_
  mutable Mutex mutex_;
  mutable CondVar changed_;
  mutable bool ended_ TLM_GUARDED_BY(mutex_) = false;  // no more masks are computed
};

// The threads that compute masks. Output masks come first, in request order; then draft masks,
// round-robin. Thread-safe, except for the destructor.
class MaskPool {
 public:
  // Returns the number of threads, half the processors, 1 to 4. The first mask starts them.
  static int Threads();

  MaskPool() = default;
  // Waits for the masks that are being computed; the others stay unknown.
  ~MaskPool();

  // Queues `mask`. Call once for each Compute that is needed.
  void Add(std::shared_ptr<OutputMask> mask);
  // Queues `masks` once; they are computed when the base is ready, while anyone else holds them.
  void Add(const std::shared_ptr<DraftMasks>& masks);

 private:
  void Work();
  void StartThreads() TLM_REQUIRES(mutex_);

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::shared_ptr<OutputMask>> waiting_ TLM_GUARDED_BY(mutex_);
  std::deque<std::weak_ptr<DraftMasks>> drafts_ TLM_GUARDED_BY(mutex_);
  bool stopped_ TLM_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_ TLM_GUARDED_BY(mutex_);
};

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_OUTPUT_MASK_H_
