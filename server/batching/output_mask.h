// Which tokens may follow in constrained outputs: computed on threads of its own, one token ahead.
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

// What an output must be, from some token on.
struct OutputConstraint {
  ConstraintMatcher matcher;
  // Tokens that end the output and are not part of its text, ascending: sampled where the text may
  // end, and nowhere else.
  std::vector<int32_t> end_ids;
};

class DraftMasks;

// The tokens that may follow what one output has so far.
//
//   [a thread of MaskPool: Compute] -> ready: run(), whole(), Await() -> Advance(tokens) -> Compute
//
// One thread, the engine's, calls all but Await and Compute.
class OutputMask final : public TokenMask {
 public:
  struct Options {
    // Look for tokens that need no draw beyond the first one.
    bool runs = true;
    absl::Duration max_wait;  // of a job
  };
  // The most tokens of a run.
  static constexpr size_t kMaxRun = 64;

  // At the constraint's place, `whole` if the text may end there; to be computed.
  OutputMask(const OutputConstraint& constraint, const Options& options, bool whole = false);

  const Options& options() const { return options_; }
  bool ready() const { return ready_.load(std::memory_order_acquire); }
  // When ready: the next tokens, where it is known without a draw which these are; the mask is that
  // of the first one. Empty without Options::runs.
  std::span<const int32_t> run() const { return std::span(run_).subspan(run_begin_); }
  // The text may end here.
  bool whole() const;
  // The output has this token: of the mask, if that is ready. True: the mask is ready for the next
  // one; else it is to be computed, behind the last of several tokens. Not while it is computed.
  bool Advance(int32_t token);
  // Waits until it is ready, at most so long; whether it is.
  bool WaitFor(absl::Duration time) const;
  // True if it is not ready; `waker` is then woken once it is.
  bool WakeWhenReady(std::shared_ptr<StreamWaker> waker);
  // The longest that a job has waited for it, or for a mask of DraftMasks, since the last call.
  absl::Duration TakeWait() { return absl::Nanoseconds(wait_ns_.exchange(0)); }

  // TokenMask.
  std::optional<std::span<const uint64_t>> Await() const override;

  // Makes it ready. Once for each time that it is to be computed. Returns the masks that have
  // waited for it and can be computed now.
  std::vector<std::weak_ptr<DraftMasks>> Compute();

 private:
  friend class DraftMasks;
  friend class MaskPool;
  // What is known when it is ready.
  struct Known {
    std::vector<int32_t> run;
    std::vector<uint64_t> first;  // the mask
    ConstraintMatcher matcher;    // behind the run
    bool whole;                   // behind the run
    std::vector<uint64_t> after;  // the mask behind the run
  };

  // Of any thread: none if it is not ready.
  std::optional<Known> KnownNow() const;
  // True if it is not ready; Compute returns `masks` then.
  bool LetWait(std::weak_ptr<DraftMasks> masks);
  // Of any thread: a job has waited in vain for what is not ready yet.
  bool IsLate() const { return late_.load() && !ready(); }
  void NoteWait(int64_t nanoseconds) const;
  void ShowFirstOfRun();

  const Options options_;
  const std::vector<int32_t> end_ids_;
  ConstraintMatcher matcher_;
  std::vector<int32_t> pending_;  // for matcher_ to accept
  std::vector<int32_t> run_;
  size_t run_begin_ = 0;         // those before it are in the output
  bool whole_;                   // behind the run
  std::vector<uint64_t> after_;  // the mask behind the run
  std::vector<uint64_t> first_;  // the bit of the run's first token

  std::atomic<bool> ready_{false};
  std::atomic<uint64_t> advances_{0};  // calls of Advance, which takes the lock
  mutable std::atomic<bool> late_{false};
  mutable std::atomic<int64_t> wait_ns_{0};
  mutable Mutex mutex_;
  mutable CondVar changed_;
  std::shared_ptr<StreamWaker> waker_ TLM_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<DraftMasks>> waiting_ TLM_GUARDED_BY(mutex_);
};

// The masks behind the tokens of a draft: each what `base` would be if the output had got these
// tokens. They are found one after the other, from the first on.
//
// One stays unknown, and its Await() says so at once, where nothing is to be sampled by it: behind
// a token that may not stand there or ends the output; once the output has got a token; once a job
// has waited in vain for one before it, or for the base. Thread-safe, but for ComputeNext.
class DraftMasks {
 public:
  // On the engine's thread.
  DraftMasks(std::shared_ptr<OutputMask> base, std::vector<int32_t> draft);
  DraftMasks(const DraftMasks&) = delete;
  DraftMasks& operator=(const DraftMasks&) = delete;

  // Behind the first `count` tokens of the draft, 1 to all; valid as long as this. A job waits for
  // it as long as for the base.
  const TokenMask* mask(size_t count) const { return &masks_[count - 1]; }
  // The text may end behind the first `count` tokens; where their mask is known.
  bool whole(size_t count) const { return masks_[count - 1].whole; }

  // Finds one mask more; false if it was the last one. By one thread at a time, when the base is
  // ready: an unready one leaves all of them unknown.
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

  // Finds the mask behind the token that stands behind `count` others; false if it has no use.
  bool Find(size_t count);
  // Whether the mask behind `count` tokens is known.
  bool WaitFor(size_t count) const;
  void End();

  // Shared with the sequence, which may end before the step does.
  const std::shared_ptr<OutputMask> base_;
  const uint64_t advances_;  // of the base, before the draft
  const std::vector<int32_t> draft_;
  std::vector<Mask> masks_;                 // behind each token
  std::optional<OutputMask::Known> known_;  // its matcher is behind the last token with a mask
  std::atomic<size_t> found_{0};            // of masks_
  mutable Mutex mutex_;
  mutable CondVar changed_;
  mutable bool ended_ TLM_GUARDED_BY(mutex_) = false;  // no more are found
};

// The threads that compute masks: those of outputs in the order they are asked for, and when there
// are none, those of drafts, one of each draft in turn. Thread-safe, but for the end.
class MaskPool {
 public:
  // So many threads are started with the first mask: half the processors, 1 to 4.
  static int Threads();

  MaskPool() = default;
  // Waits for the masks that are being computed; the others stay unknown.
  ~MaskPool();

  // Once for each time that `mask` is to be computed.
  void Add(std::shared_ptr<OutputMask> mask);
  // Once; to be computed when the base is ready, as long as anyone else holds them.
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
