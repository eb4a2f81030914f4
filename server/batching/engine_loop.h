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

// Owns all sequences that were taken from the queue, and their blocks. Not thread-safe: one thread
// calls it, and it alone calls the model.
//
//   Step n    arrivals, what is unwanted | launch n | plan n + 1 | wait for n | its results
//   Step n+1  arrivals, what is unwanted, rest of the plan | launch n + 1 | ...
//
// The plan of the next step is made while the model computes this one, from what is known without
// its results: how far every sequence will be, and that those which need not end now will have one
// more token. Sequences that end all the same are dropped from it before it is launched, and what
// arrived in the meantime is added.
//
// A model that takes two batches is not kept waiting for that: the plan is launched when it is
// made, unless sampling in it has to wait for results (see StepPipeline). Then what Step waits for
// was launched by the Step before it, and a sequence that has ended computes one token in vain,
// which reaches no stream, no figure and no cached block:
//
//   Step n    arrivals, what is unwanted | plan n + 1 | launch n + 1 | wait for n | its results
//
// Constrained outputs: while the model computes the logits of a token, a thread of masks_ finds
// which tokens may stand there, and sampling waits for that. Where it is known without a draw what
// follows, those tokens are appended before the next launch.
class EngineLoop {
 public:
  // What callers are to be told after a step, and what they may ask.
  struct Report {
    std::vector<std::shared_ptr<TokenStream>> streams;  // with news; some may occur twice
    int64_t ended = 0;                                  // requests, since the last report
    // `waiting_requests` counts the preempted alone. Not filled in: waiting_tokens, busy,
    // last_progress, draining and what is estimated or measured by the second.
    EngineStats stats;
  };

  // `queue` is shared with the token streams, whose readers wake its reader (weakly, through the
  // stream). The others outlive the loop; `options` fit the model; `metrics` and `kv_events`, the
  // latter told of every change of the prefix cache, and `draft_source` may be null.
  EngineLoop(LanguageModel& model, const EngineOptions& options, Clock& clock,
             std::shared_ptr<RequestQueue> queue, EngineMetrics* metrics = nullptr,
             KvEventLog* kv_events = nullptr, DraftSource* draft_source = nullptr);

  // Takes arrivals, ends what is cancelled or expired, waits for one batch and pushes its results.
  // False when there was nothing to compute: nothing is left, or all wait for their readers. Then
  // wait for the queue's work, at the latest until NextDeadline().
  bool Step();
  // Ends everything, arrivals included.
  void EndAll(const absl::Status& status);
  // See Engine::FlushPrefixCache; between two steps. What sequences have computed until now will
  // not be found by others either.
  int64_t FlushPrefixCache();
  // The earliest among the sequences, hard or soft.
  absl::Time NextDeadline() const;
  Report TakeReport();

 private:
  // A row's use: the sequence's end if that was its last one.
  using RowResult = absl::StatusOr<std::optional<Finish>>;

  void TakeArrivals();
  // engine_loop_masks.cc: constrained outputs.
  void SetMask(Sequence& sequence);
  void FollowMasks(absl::Time now);
  static bool MayHaveForcedRun(const Sequence& sequence);
  void AppendForcedRun(Sequence& sequence, absl::Time now);
  // It has a token, and its mask is to be that of the next one, or, while rows of a draft follow,
  // of the one behind these.
  void AdvanceMask(Sequence& sequence, int32_t token);
  void QueueMask(Sequence& sequence);
  void WaitForMask(Sequence& sequence);

  // engine_loop_drafts.cc: guessed tokens. Where a sequence may have a draft in the next step, and
  // which.
  struct PendingDraft {
    Sequence* sequence = nullptr;
    Draft draft;            // by a model: chances alone, until it was asked
    bool by_model = false;  // of draft_source_
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
  // What the step computed, and how long it took; drafts do not count.
  ServiceRates::Step CountTokens(const StepResults& results, absl::Time end) const;
  void RecordRates(const StepPlan& plan, const ServiceRates::Step& step, absl::Time end);
  void LeaveQueue(const StepPlan& plan);
  void LeaveQueue(Sequence& sequence);
  // Keeps the fault for the figures; what the requests it hit are told.
  absl::Status DeviceFault(const absl::Status& error);
  void UpdateStats();

  // engine_loop_ends.cc: which outputs end, and how.
  void DropUnwanted(absl::Time now);
  void DropIfUnwanted(Sequence& sequence, const ServiceEstimates& estimates, absl::Time now);
  void DropDetachedBranches(Sequence& sequence, absl::Time now);
  bool Infeasible(Sequence& sequence, const ServiceEstimates& estimates, absl::Time now);
  void EndUncomputed(Sequence& sequence, const Finish& finish, absl::Time now);
  // An output's end; that of a sequence's branches too, which end with the same status.
  void End(Sequence& sequence, const absl::Status& status, const Finish& finish, absl::Time now);
  void EndChunks(const StepPlan& plan, const absl::Status& status, absl::Time now);
  void EndBranch(Sequence& sequence, size_t branch, const StreamEnd& end);
  void PushEnd(const std::shared_ptr<TokenStream>& stream, int64_t request_number, StreamEnd end);
  void EraseFinished();

  // engine_loop_results.cc: what becomes of logits and tokens.
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
  Sampler sampler_;  // for tokens that are given
  StepPlan ahead_;   // of the next step, as far as it is known; empty when that was launched
  std::vector<std::unique_ptr<Sequence>> sequences_;
  StepPipeline pipeline_;                              // its steps know sequences
  bool any_finished_ = false;                          // among the sequences
  std::unordered_map<int64_t, int64_t> outputs_left_;  // not ended, by request_number
  int64_t next_number_ = 0;
  int64_t never_admitted_ = 0;          // of the sequences: those the queue still counts as waiting
  QueueLoad left_queue_;                // admitted since the last step's end
  std::optional<absl::Time> last_end_;  // of the step before, if that computed something
  absl::Duration step_time_;            // of the last step
  absl::Status step_fault_;             // what has failed in this step
  Report report_;
  MaskPool masks_;

  DraftSource* draft_source_;  // null: none, or it has failed
  absl::Status draft_fault_;   // of the step in progress: told as its fault
  MatchRecord matches_;        // of all sequences' lookups
  MatchRecord model_matches_;  // and of all drafts of draft_source_
  StepCosts costs_;
  DraftCosts draft_costs_;                    // of draft_source_
  absl::Duration draft_time_;                 // that it took for the step in progress
  std::vector<PendingDraft> pending_drafts_;  // of the step to come
  int64_t decoding_ = 0;                      // sequences, those with a pending draft among them
  int64_t accepted_ = 0;                      // tokens of drafts, in this step
};

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_ENGINE_LOOP_H_
