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

// The tokens that may follow what one output has so far.
//
//   [a thread of MaskPool: Compute] -> ready: run(), whole(), Await() -> Advance(token) -> Compute
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
  // one; else it is to be computed.
  bool Advance(int32_t token);
  // Waits until it is ready, at most so long; whether it is.
  bool WaitFor(absl::Duration time) const;
  // True if it is not ready; `waker` is then woken once it is.
  bool WakeWhenReady(std::shared_ptr<StreamWaker> waker);
  // The longest that a job has waited for it since the last call.
  absl::Duration TakeWait() { return absl::Nanoseconds(wait_ns_.exchange(0)); }

  // TokenMask.
  std::optional<std::span<const uint64_t>> Await() const override;

  // Makes it ready. Once for each time that it is to be computed.
  void Compute();

 private:
  // The token that is not drawn, if there is one.
  std::optional<int32_t> Forced(const ConstraintMatcher::Allowed& allowed) const;
  void SetBehind(const ConstraintMatcher::Allowed& allowed);
  void ShowFirstOfRun();
  bool IsEnd(int32_t token) const;

  const Options options_;
  const std::vector<int32_t> end_ids_;
  ConstraintMatcher matcher_;
  std::optional<int32_t> pending_;  // for matcher_ to accept
  std::vector<int32_t> run_;
  size_t run_begin_ = 0;          // those before it are in the output
  bool whole_;                    // behind the run
  std::vector<uint64_t> behind_;  // the mask behind the run
  std::vector<uint64_t> first_;   // the bit of the run's first token

  std::atomic<bool> ready_{false};
  mutable std::atomic<int64_t> wait_ns_{0};
  mutable Mutex mutex_;
  mutable CondVar changed_;
  std::shared_ptr<StreamWaker> waker_ TLM_GUARDED_BY(mutex_);
};

// Stub.
class DraftMasks {
 public:
  DraftMasks(std::shared_ptr<OutputMask> base, std::vector<int32_t> draft)
      : base_(std::move(base)), draft_(std::move(draft)) {}
  const TokenMask* mask(size_t) const { return base_.get(); }
  void Compute() {}

 private:
  std::shared_ptr<OutputMask> base_;
  std::vector<int32_t> draft_;
};

// The threads that compute masks, in the order they are asked for. Thread-safe, but for the end.
class MaskPool {
 public:
  // So many threads are started with the first mask: half the processors, 1 to 4.
  static int Threads();

  MaskPool() = default;
  // Waits for the masks that are being computed; the others stay unknown.
  ~MaskPool();

  // Once for each time that `mask` is to be computed.
  void Add(std::shared_ptr<OutputMask> mask);
  void Add(std::shared_ptr<DraftMasks>) {}

 private:
  void Work();

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::shared_ptr<OutputMask>> waiting_ TLM_GUARDED_BY(mutex_);
  bool stopped_ TLM_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_ TLM_GUARDED_BY(mutex_);
};

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_OUTPUT_MASK_H_
