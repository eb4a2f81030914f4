// What the engine thread does in a step, without the thread: arrivals, plan, forward pass, tokens.
#ifndef TLM_SERVER_BATCHING_ENGINE_LOOP_H_
#define TLM_SERVER_BATCHING_ENGINE_LOOP_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "model/base/clock.h"
#include "model/kv_cache/block_pool.h"
#include "model/sampling/sampler.h"
#include "model/transformer_lm/batch.h"
#include "model/transformer_lm/language_model.h"
#include "server/batching/engine.h"
#include "server/batching/rate_meter.h"
#include "server/batching/request_queue.h"
#include "server/batching/scheduler.h"
#include "server/batching/sequence.h"

namespace tlm {

// Owns all sequences that were taken from the queue, and their blocks. Not thread-safe: one thread
// calls it, and it alone calls the model.
class EngineLoop {
 public:
  // What callers are to be told after a step, and what they may ask.
  struct Report {
    std::vector<std::shared_ptr<TokenStream>> streams;  // with news; some may occur twice
    int64_t ended = 0;                                  // requests, since the last report
    // `waiting_requests` counts the preempted alone; waiting_tokens, busy and last_progress are
    // not filled in.
    EngineStats stats;
  };

  // `queue` is shared with the mailboxes' readers, who wake its reader (weakly, through the
  // mailbox). The others outlive the loop; `options` fit the model.
  EngineLoop(LanguageModel& model, const EngineOptions& options, Clock& clock,
             std::shared_ptr<RequestQueue> queue);

  // Takes arrivals, ends what is cancelled or expired, computes one batch and pushes its results.
  // False when there was nothing to compute: nothing is left, or all wait for their readers. Then
  // wait for the queue's work, at the latest until NextDeadline().
  bool Step();
  // Ends everything, arrivals included.
  void EndAll(const absl::Status& status);
  // The earliest among the sequences.
  absl::Time NextDeadline() const;
  Report TakeReport();

 private:
  // A row's use: the sequence's end if that was its last one.
  using RowResult = absl::StatusOr<std::optional<Finish>>;

  void TakeArrivals();
  void DropUnwanted(absl::Time now);
  void DropDetachedBranches(Sequence& sequence, absl::Time now);
  void StartChunks(const StepPlan& plan, absl::Time now);
  void FailChunks(const StepPlan& plan, const absl::Status& error, absl::Time now);
  QueueLoad LeaveQueue(const StepPlan& plan);
  void LeaveQueue(Sequence& sequence);
  void MeasureDrain(const QueueLoad& started, absl::Duration elapsed);
  void UpdateStats();
  // An output's end; that of a sequence's branches too, which end with the same status.
  void End(Sequence& sequence, const absl::Status& status, const Finish& finish, absl::Time now);
  void EndBranch(Sequence& sequence, size_t branch, const StreamEnd& end);
  void PushEnd(const std::shared_ptr<TokenStream>& stream, int64_t request_number, StreamEnd end);
  // Keeps the fault for the figures; what the requests it hit are told.
  absl::Status DeviceFault(const absl::Status& error);
  void EraseFinished();

  // engine_loop_results.cc: what becomes of the logits.
  void TakeResults(const StepPlan& plan, std::span<const float> logits, absl::Time now);
  void CountTokens(const Chunk& chunk);
  void TakeRow(Sequence& sequence, std::span<const float> logits, absl::Time now);
  RowResult UseRow(Sequence& sequence, std::span<const float> logits, absl::Time now);
  RowResult DeliverRow(Sequence& sequence, std::span<const float> logits);
  RowResult ScorePromptToken(Sequence& sequence, std::span<const float> logits);
  RowResult ScoreContinuations(Sequence& sequence, std::span<const float> logits);
  absl::Status PushScore(Sequence& sequence, int64_t index, int32_t id,
                         std::span<const float> logits);
  RowResult Draw(Sequence& sequence, std::span<const float> logits, absl::Time now);
  void StartBranches(Sequence& parent, std::span<const float> logits, absl::Time now);

  LanguageModel& model_;
  Clock& clock_;
  // Shared with mailboxes that may outlive the engine; see TokenStream::SetWaker.
  const std::shared_ptr<RequestQueue> queue_;
  BlockPool pool_;
  Scheduler scheduler_;
  Sampler sampler_;
  Batch batch_;
  std::vector<std::unique_ptr<Sequence>> sequences_;
  std::unordered_map<int64_t, int64_t> outputs_left_;  // not ended, by request_number
  int64_t next_number_ = 0;
  int64_t never_admitted_ = 0;  // of the sequences: those the queue still counts as waiting
  RateMeter drained_requests_;
  RateMeter drained_tokens_;
  Report report_;
};

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_ENGINE_LOOP_H_
