// Does the engine thread's work in a step, without the thread: arrivals, plan, forward pass,
// tokens.
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
#include "model/kv_cache/prefix_cache.h"
#include "model/sampling/sampler.h"
#include "model/transformer_lm/language_model.h"
#include "server/batching/engine_options.h"
#include "server/batching/kv_event_log.h"
#include "server/batching/output_mask.h"
#include "server/batching/prefill_throttle.h"
#include "server/batching/request_queue.h"
#include "server/batching/scheduler.h"
#include "server/batching/sequence.h"
#include "server/batching/service_rates.h"
#include "server/batching/step_pipeline.h"
#include "server/observe/engine_metrics.h"
#include "server/observe/engine_stats.h"
#include "server/speculation/draft.h"
#include "server/speculation/speculation_policy.h"
#include "server/speculation/token_lookup.h"

namespace tlm {

// Owns all sequences taken from the queue and their blocks. Not thread-safe: one thread calls it,
// and only the loop calls the model.
//
//   Step n    arrivals, drops | launch n | plan n + 1 | wait for n | results of n
//   Step n+1  arrivals, drops, rest of the plan | launch n + 1 | ...
//
// The next step is planned while the model computes this one, from what is known without its
// results: how far every sequence will be, and that a sequence that need not end now will have one
// more token. Before the launch, sequences that did end are dropped from the plan and new arrivals
// are added.
//
// A model that takes two batches does not wait for that: the plan is launched as soon as it is
// made, unless its sampling depends on results (see StepPipeline). Step then waits for a batch that
// the previous Step launched. A sequence that has ended computes one surplus token, which reaches
// no stream, no metric and no cached block:
//
//   Step n    arrivals, drops | plan n + 1 | launch n + 1 | wait for n | results of n
//
// Constrained outputs: while the model computes the logits of a token, a thread of masks_ computes
// the mask for it, and sampling waits for the mask. Tokens that are known without sampling are
// appended before the next launch.
class EngineLoop {
 public:
  // News for callers after a step, and the statistics they may ask for.
  struct Report {
    std::vector<std::shared_ptr<TokenStream>> streams;  // streams with news; may contain duplicates
    int64_t ended = 0;                                  // requests ended since the last report
    // `waiting_requests` counts only preempted requests. Not filled in: waiting_tokens, busy,
    // last_progress, draining, estimates and rates per second.
    EngineStats stats;
  };

  // `queue` is shared with the token streams, whose readers wake the queue's reader (weakly,
  // through the stream). The others outlive the loop; `options` fit the model. `metrics`,
  // `kv_events` (which receives every change of the prefix cache) and `draft_source` may be null.
  EngineLoop(LanguageModel& model, const EngineOptions& options, Clock& clock,
             std::shared_ptr<RequestQueue> queue, EngineMetrics* metrics = nullptr,
             KvEventLog* kv_events = nullptr, DraftSource* draft_source = nullptr);

  // Takes arrivals, ends cancelled and expired requests, waits for one batch and pushes its
  // results. False when there was nothing to compute: no sequence is left, or all wait for their
  // readers. Then wait for the queue's work, until NextDeadline() at the latest.
  bool Step();
  // Ends all requests, arrivals included.
  void EndAll(const absl::Status& status);
  // See Engine::FlushPrefixCache. Call between two steps. Blocks computed before the call are never
  // found by other sequences.
  int64_t FlushPrefixCache();
  // Returns the earliest deadline of all sequences, hard or soft.
  absl::Time NextDeadline() const;
  Report TakeReport();

 private:
  // The result of using a row: the sequence's end if this row was its last one.
  using RowResult = absl::StatusOr<std::optional<Finish>>;

  void TakeArrivals();
  // engine_loop_masks.cc: constrained outputs.
  void SetMask(Sequence& sequence);
  void FollowMasks(absl::Time now);
  static bool MayHaveForcedRun(const Sequence& sequence);
  void AppendForcedRun(Sequence& sequence, absl::Time now);
  // Advances the mask by `token`; with draft rows left, queues it only after the last of them.
  void AdvanceMask(Sequence& sequence, int32_t token);
  void QueueMask(Sequence& sequence);
  void WaitForMask(Sequence& sequence);

  // engine_loop_drafts.cc: guessed tokens.
  // A sequence that may get a draft in the next step, and the draft.
  struct PendingDraft {
    Sequence* sequence = nullptr;
    Draft draft;            // by a model: only chances until the model was asked
    bool by_model = false;  // from draft_source_
  };
  void PrepareDrafts();
  bool FindPendingDrafts();
  void AddPendingDraft(Sequence& sequence);
  bool MayAskModel(const Sequence& sequence, int64_t max_tokens);
  std::vector<int64_t> ChooseLengths() const;
  void AskModel(std::span<int64_t> lengths);
  bool WouldDraft();
  void SetDraftMasks(const StepPlan& plan);
  void EndDraft(Sequence& sequence, const Chunk& chunk, int64_t accepted);
  void RecordCosts(const StepPlan& plan, absl::Duration elapsed);

  StepPlan CompletePlan();
  void PlanAhead();
  StepPlan PlanStep();
  void Launch(StepPlan plan, absl::Time now);
  void StartStreams(Sequence& sequence, absl::Time now);
  void FinishStep(StepResults results);
  void FailStep(const StepResults& results, absl::Time now);
  // Returns the tokens that the step computed, and its duration; drafts do not count.
  ServiceRates::Step CountTokens(const StepResults& results, absl::Time end) const;
  void RecordRates(const StepPlan& plan, const ServiceRates::Step& step, absl::Time end);
  void LeaveQueue(const StepPlan& plan);
  void LeaveQueue(Sequence& sequence);
  // Records the fault for the statistics; returns the status for the requests that it hit.
  absl::Status DeviceFault(const absl::Status& error);
  void UpdateStats();

  // engine_loop_ends.cc: which outputs end, and how.
  void DropUnwanted(absl::Time now);
  void DropIfUnwanted(Sequence& sequence, const ServiceEstimates& estimates, absl::Time now);
  void DropDetachedBranches(Sequence& sequence, absl::Time now);
  bool Infeasible(Sequence& sequence, const ServiceEstimates& estimates, absl::Time now);
  void EndUncomputed(Sequence& sequence, const Finish& finish, absl::Time now);
  // Ends an output, and all branches of its sequence with the same status.
  void End(Sequence& sequence, const absl::Status& status, const Finish& finish, absl::Time now);
  void EndChunks(const StepPlan& plan, const absl::Status& status, absl::Time now);
  void EndBranch(Sequence& sequence, size_t branch, const StreamEnd& end);
  void PushEnd(const std::shared_ptr<TokenStream>& stream, int64_t request_number, StreamEnd end);
  void EraseFinished();

  // engine_loop_results.cc: uses logits and tokens.
  void TakeResults(StepResults& results, absl::Time now);
  void TakeRow(Sequence& sequence, const RowResults& row, absl::Time now);
  RowResult UseRow(Sequence& sequence, const RowResults& row, absl::Time now);
  RowResult DeliverRow(Sequence& sequence, std::span<const float> logits);
  RowResult ScorePromptToken(Sequence& sequence, std::span<const float> logits);
  RowResult ScoreContinuations(Sequence& sequence, std::span<const float> logits);
  absl::Status PushScore(Sequence& sequence, int64_t index, int32_t id,
                         std::span<const float> logits);
  void RecordToken(Sequence& sequence, absl::Time now);
  RowResult TakeToken(Sequence& sequence, const RowResults& row, absl::Time now);
  RowResult TakeFirstTokens(Sequence& parent, const RowResults& row, absl::Time now);
  void StartBranch(Sequence& parent, std::unique_ptr<Sequence> branch, const RowResults& row,
                   absl::Time now);
  void Publish(Sequence& sequence, int64_t tokens);

  const EngineOptions options_;
  LanguageModel& model_;
  Clock& clock_;
  // Shared with token streams that may outlive the engine; see TokenStream::SetWaker.
  const std::shared_ptr<RequestQueue> queue_;
  EngineMetrics* const metrics_;  // null: no metrics
  BlockPool pool_;
  std::optional<KvEventRecorder> kv_events_;
  std::optional<PrefixCache> cache_;
  Scheduler scheduler_;
  PrefillThrottle throttle_;
  ServiceRates rates_;
  Sampler sampler_;  // scores given tokens
  StepPlan ahead_;   // next step, as far as it is known; empty once launched
  std::vector<std::unique_ptr<Sequence>> sequences_;
  StepPipeline pipeline_;                              // its steps point to sequences
  bool any_finished_ = false;                          // true when a sequence has finished
  std::unordered_map<int64_t, int64_t> outputs_left_;  // outputs not ended, by request_number
  int64_t next_number_ = 0;
  int64_t never_admitted_ = 0;          // sequences that the queue still counts as waiting
  QueueLoad left_queue_;                // requests admitted since the last step ended
  std::optional<absl::Time> last_end_;  // end of the previous step, if it computed something
  absl::Duration step_time_;            // duration of the last step
  absl::Status step_fault_;             // first fault of this step
  Report report_;
  MaskPool masks_;

  DraftSource* draft_source_;  // null: no draft source, or it has failed
  absl::Status draft_fault_;   // its fault in the current step, reported as the step's
  MatchRecord matches_;        // judges all sequences' lookups
  MatchRecord model_matches_;  // judges all drafts of draft_source_
  StepCosts costs_;
  DraftCosts draft_costs_;                    // costs of draft_source_
  absl::Duration draft_time_;                 // time that draft_source_ took for the current step
  std::vector<PendingDraft> pending_drafts_;  // drafts of the next step
  int64_t decoding_ = 0;                      // decoding sequences, with or without a draft
  int64_t accepted_ = 0;                      // draft tokens accepted in this step
};

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_ENGINE_LOOP_H_
