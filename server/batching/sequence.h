// One running generation or evaluation: its tokens, how far it is computed, when it ends.
#ifndef TLM_SERVER_BATCHING_SEQUENCE_H_
#define TLM_SERVER_BATCHING_SEQUENCE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/time/time.h"
#include "model/kv_cache/block_pool.h"
#include "model/kv_cache/block_table.h"
#include "model/kv_cache/prefix_cache.h"
#include "model/sampling/sampling_job.h"
#include "server/batching/output_mask.h"
#include "server/batching/request.h"
#include "server/batching/service_rates.h"
#include "server/batching/token_stream.h"
#include "server/speculation/token_lookup.h"

namespace tlm {

enum class SequenceState {
  kWaiting,     // holds no blocks: not started, or preempted
  kPrefilling,  // more than one token away from its next token, or nothing is to be sampled
  kDecoding,    // one token away from its next token, or forced ones
  kFinished,
};

// How a sequence ended well.
struct Finish {
  FinishReason reason = FinishReason::kLength;
  int32_t matched_token = -1;
};

// The eos and stop ids together, ascending, each once.
std::vector<int32_t> EndingIds(const StopCriteria& stop);

// The end of an output of `generated` tokens, the last of which is `token`, at the end of a
// sequence of `length` tokens; none when it goes on. It ends with an eos or stop id that is not
// among the first min_new_tokens, with the last token asked for, or when it fills `max_context`.
std::optional<Finish> FinishAt(const StopCriteria& stop, int64_t generated, int32_t token,
                               int64_t length, int64_t max_context);

// Where the tokens that a request brings as generated end its output: the index of the last one
// that belongs to it. None when it goes on.
std::optional<size_t> EndOfGenerated(const Request& request, int64_t max_context);

// When a sequence arrived, began and gave its tokens.
class SequenceTimes {
 public:
  explicit SequenceTimes(absl::Time arrival) : arrival_(arrival) {}
  // Of a branch: it began with its parent.
  SequenceTimes ForBranch() const;

  // Returns the time it waited.
  absl::Duration Start(absl::Time now);
  bool started() const { return started_.has_value(); }
  void FirstToken(absl::Time now) { first_token_ = now; }
  // The time since the token before this one, zero for the first one.
  absl::Duration Token(absl::Time now);
  // The times of one that ends now.
  void ReportTo(absl::Time now, StreamEnd& end) const;

 private:
  absl::Time arrival_;
  std::optional<absl::Time> started_;
  std::optional<absl::Time> first_token_;
  std::optional<absl::Time> last_token_;
};

// Positions [0, computed) are in the KV cache, [computed, target) are not yet. Results come from
// rows, the logits at wanted positions below the target:
//
//   Generate  p p p p p g g        p prompt, g generated; the row at 6 gives the next g. With
//             |-----|       |      prompt scores the rows at 0 to 3 were wanted before the first.
//                computed = 3, target = 7: preempted after 2 tokens, being recomputed
//
//   Forward   p p p p p            Rows where asked for; the target follows the last one.
//
//   Score     p p p p p c c c      c the continuation in progress. The row at 4 scores the first
//             |---------|   |      token of every continuation; those at 5 and 6 the rest of this.
//                computed = 5, target = 7: just begun, in the place of the one before it
//
// A step that has begun counts as computed, and the next one may be planned while its rows are on
// their way: the next token is not known then, only that there will be one. `d` is being sampled:
//
//   Generate  p p p p p g d        target = 7 and decoding, or, where d is known to be the last,
//                       |          target = 6 and nothing is left to plan
//                computed = 6
//
// That next step may even begin before d is known; then two tokens are on their way, until the
// first of the two steps has ended. Where d turns out to end the output, the token behind it is
// surplus: no result has it.
//
// A request for several outputs is one sequence until its first token. Then its branches become
// sequences, which share the full blocks of the prompt:
//
//   parent    [p p p p][p p g g]   blocks of 4 tokens
//   branch 0  [  same ][p p g g]   its own copy of the last block, as it is going to write there
//
// Constrained outputs have tokens that need no draw. Where several follow, they are appended at
// once and computed like a prompt, but as part of decoding:
//
//   Generate  p p p p p g g f f    target = 9, the row at 8 gives the next token
//                          |
//                       computed = 6
//
// A draft, tokens that are guessed or claimed, is computed like forced tokens, but each of its rows
// draws. The tokens drawn are appended until one differs from the draft; the rows behind that are
// surplus, and what they computed is computed anew:
//
//   Generate  p p p p p g d d d    target = 9 with the draft, four rows from position 5 on
//                         x        the second one differs from the draft's second token:
//             p p p p p g d x      two tokens more, computed = 7, target = 8
//
// A claimed output is such a draft from the start, in several chunks, and ends with it.
//
// Not thread-safe: the engine thread owns it.
class Sequence {
 public:
  // `number` tells sequences of one engine apart, in the order of their arrival; the numbers behind
  // it, one for each branch stream, are this request's too.
  Sequence(Request&& request, int64_t number);
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  // Without the prompt, which tokens() begins with. Branch streams that were taken are null.
  const Request& request() const { return request_; }
  TokenStream& stream() const { return *request_.stream; }
  int64_t number() const { return number_; }
  // What the sequences of one request have in common: its first one's number.
  int64_t request_number() const { return request_number_; }
  bool generates() const { return request_.generate() != nullptr; }
  // Its results are rows, which its token stream bounds.
  bool delivers_rows() const { return request_.forward() != nullptr; }
  SequenceState state() const;

  std::span<const int32_t> tokens() const { return tokens_; }  // prompt, then generated or given
  int64_t prompt_tokens() const { return prompt_tokens_; }
  int64_t input_tokens() const { return input_tokens_; }       // InputTokens of the request
  const LeastWork& least_work() const { return least_work_; }  // of the request, nothing cached
  int64_t generated_tokens() const { return Length() - prompt_tokens_; }
  const TokenHistory& history() const { return history_; }  // empty when no penalty asks for it

  // Which tokens may follow; null when all may. Behind: it has tokens that its mask is not to be
  // computed behind yet, as more of a draft follow.
  OutputMask* mask() const { return mask_.get(); }
  const std::shared_ptr<OutputMask>& shared_mask() const { return mask_; }
  // Once, of a Generate request with a constraint; a branch has its own.
  void SetMask(std::shared_ptr<OutputMask> mask) { mask_ = std::move(mask); }
  void set_mask_after(bool behind) { mask_after_ = behind; }
  bool mask_after() const { return mask_after_; }

  int64_t computed() const { return computed_; }
  int64_t target() const;
  // 0 too when the rows on their way are the last ones, and while it awaits its mask.
  int64_t remaining() const;
  // The most positions that it may compute before anything new is sampled.
  int64_t cache_tokens() const;
  // A step has put the next `count` positions into the cache.
  void MarkComputed(int64_t count);
  // A step has begun that does. Its rows are on their way until each was used: by Append or
  // MarkRowDelivered.
  void MarkLaunched(int64_t count, int64_t max_context);
  // The oldest of the steps that have begun has ended: it took part in that.
  void MarkStepEnded() { --steps_in_flight_; }
  // Steps that have begun and not ended know it.
  bool in_flight() const { return steps_in_flight_ > 0; }
  // Generate: tokens behind tokens() that are being sampled.
  int64_t tokens_in_flight() const;
  // Where the last of them stands among its batch's jobs, as the batch's builder noted it.
  void set_job(int64_t job) { job_ = job; }
  int64_t job() const { return job_; }
  // Results that are on their way. 0 behind a row that made those after it surplus.
  int64_t rows_in_flight() const { return rows_in_flight_; }
  // Results its token stream will have room for behind those on their way.
  int64_t Room() const { return stream().Room() - rows_in_flight_; }

  // Rows wanted from the next `count` positions.
  int64_t RowsWanted(int64_t count) const;
  // As many of the remaining positions as fit both limits.
  int64_t LongestChunk(int64_t max_tokens, int64_t max_rows) const;
  // The position of the n-th wanted row (from 0) below the target that was not delivered.
  int64_t WantedPosition(int64_t n) const;
  // The same of those that are not on their way either.
  int64_t UnplannedPosition(int64_t n) const { return WantedPosition(rows_in_flight_ + n); }

  // Score: the index of the continuation whose tokens follow the prompt.
  int64_t continuation() const { return continuation_; }
  // Generate: ids that sampling tokens()[position] must leave out, ascending: those that would
  // end the sequence before it has min_new_tokens.
  std::span<const int32_t> BannedTokens(int64_t position) const;
  // Generate: the first of the rows on their way gave this token; the end, if it is one.
  std::optional<Finish> Append(int32_t token, int64_t max_context);
  // Generate, decoding, with nothing on its way: the next token is this one, which the request
  // allows there (MayAppend); the end, if it is one.
  std::optional<Finish> AppendForced(int32_t token, int64_t max_context);
  bool MayAppend(int32_t token) const;
  // Generate: the first row on its way gave nothing. It is computed again, with those behind it,
  // once the mask is ready.
  void CancelFirstRow();
  void set_awaits_mask(bool awaits_mask) { awaits_mask_ = awaits_mask; }
  bool awaits_mask() const { return awaits_mask_; }

  // Generate: its tokens come with the request, and are only compared with what is drawn.
  bool verifies() const { return generates() && !request_.generate()->claimed.empty(); }
  // Generate, decoding without forced tokens, with nothing on its way and no branches: what follows
  // tokens() may be these. What the next step does not compute of them is dropped.
  void SetDraft(std::vector<int32_t> ids, bool by_model = false);
  // Tokens behind tokens() that are guessed or claimed, and not judged.
  std::span<const int32_t> draft() const { return std::span(draft_).subspan(draft_begin_); }
  // Of them: computed by a step that has begun.
  int64_t draft_in_flight() const { return draft_in_flight_; }
  // Those of the draft that a chunk of so many tokens computes.
  int64_t DraftTokens(int64_t count) const;
  const SpeculationCounts& speculation() const { return speculation_; }
  // A DraftSource has made the last draft.
  bool drafted_by_model() const { return by_model_; }
  // What its guesses are made from and judged by; null until SetGuessing.
  struct Guessing {
    TokenLookup lookup;
    MatchRecord by_model{MatchRecord::kOwnMemory};
  };
  Guessing* guessing() const { return guessing_.get(); }
  void SetGuessing(std::unique_ptr<Guessing> guessing) { guessing_ = std::move(guessing); }
  // Constrained: the masks behind the draft's tokens that the next step computes.
  void SetDraftMasks(std::shared_ptr<DraftMasks> masks) { draft_masks_ = std::move(masks); }
  const DraftMasks* draft_masks() const { return draft_masks_.get(); }
  // Generate, before anything was computed: the end, if the tokens that came with the request are a
  // whole output.
  std::optional<Finish> FinishedBefore(int64_t max_context) const;
  // Every other row: the first of the wanted ones was delivered. After a continuation's last one
  // the next continuation begins.
  std::optional<Finish> MarkRowDelivered();

  // Outputs that are still to become sequences.
  int64_t branches() const;
  // Makes them, without blocks; none is left. Those of streams taken before are left out.
  std::vector<std::unique_ptr<Sequence>> TakeBranches();
  // Drops one of them (by index into branch_streams, not yet taken); its token stream.
  std::shared_ptr<TokenStream> TakeBranchStream(size_t branch);

  // How many tokens AdoptPrefix would find now.
  int64_t CachedTokens(const PrefixCache& cache);
  // Before it runs, without blocks: becomes a user of the cached blocks that hold the beginning of
  // its tokens, as far as no wanted row would be skipped, and is computed so far. Nothing when its
  // request bypasses the cache.
  void AdoptPrefix(PrefixCache& cache);
  // Tokens AdoptPrefix found before the first step, at most the prompt's.
  int64_t cached_prompt_tokens() const { return cached_prompt_tokens_; }
  // A row was finite, so everything before it is sound: publishes the full blocks up to `tokens`
  // computed tokens that were not yet, and replaces those that others have published before.
  // Blocks whose contents will be overwritten (of continuations that are scored) are left out.
  void PublishBlocks(int64_t tokens, PrefixCache& cache);
  // Nothing that its blocks hold, or will hold until it gives them back, is published from now on.
  void StopPublishing() { blocks_.StopPublishing(); }

  // Takes what is missing for `tokens` tokens; false, and nothing is taken, when the pool has less.
  [[nodiscard]] bool Grow(BlockPool& pool, int64_t tokens) { return blocks_.Grow(pool, tokens); }
  // A branch that holds no blocks becomes a user of those that its parent has filled with the
  // prompt and takes one for the rest, if any, whose contents are to be copied; then its prompt is
  // computed. False, and nothing is taken, when the pool has no block left or the parent was
  // preempted before its prompt's last row arrived.
  [[nodiscard]] bool ShareBlocks(const Sequence& parent, BlockPool& pool);
  // Gives those blocks back that a draft which was dropped had taken.
  void TrimBlocks(BlockPool& pool);
  // Gives all blocks back: nothing is computed any more.
  void ReleaseBlocks(BlockPool& pool);
  // In the order of the positions they hold.
  std::span<const BlockId> blocks() const { return blocks_.blocks(); }

  // The queue counts its request as waiting.
  bool queued() const { return queued_; }
  void LeaveQueue() { queued_ = false; }
  // Running is the scheduler's word: holds blocks and may be in batches.
  void set_running(bool running) { running_ = running; }
  void CountPreemption() { ++preemptions_; }
  int64_t preemptions() const { return preemptions_; }

  // The step that computes it first begins; returns the time it waited.
  absl::Duration MarkStarted(absl::Time now) { return times_.Start(now); }
  bool started() const { return times_.started(); }
  // The first token was sampled.
  void MarkFirstToken(absl::Time now) { times_.FirstToken(now); }
  // A token was sampled; the time since the one before it, zero for the first one here.
  absl::Duration MarkToken(absl::Time now) { return times_.Token(now); }
  // Closes the sequence; what is to be told at the end. `finish` counts when `status` is OK. What
  // was computed for several outputs is the parent's.
  StreamEnd End(const absl::Status& status, const Finish& finish, absl::Time now);
  // What is to be told of an output that ends before it has become a sequence.
  StreamEnd BranchEnd(const absl::Status& status, absl::Time now) const;

 private:
  // A branch as it stands when the parent has computed the prompt.
  Sequence(const Sequence& parent, size_t branch);

  int64_t Length() const { return static_cast<int64_t>(tokens_.size()); }
  // The first wanted row that is not on its way, or the end of those that are the last.
  int64_t NextRow() const { return next_row_ + rows_in_flight_; }
  std::optional<Finish> BeginContinuation();
  // Positions of the draft that are to be computed: behind a claimed output nothing is drawn.
  int64_t DraftAhead() const;
  // What was drawn behind tokens() is this; whether the draft says so, too.
  bool JudgeDraft(int32_t token);
  void DropDraft();
  // Blocks that may come from the cache: full ones before the next wanted row that are not going to
  // be written.
  int64_t CacheableBlocks() const;

  Request request_;
  const int64_t number_;
  const int64_t request_number_;
  const int64_t input_tokens_;
  const LeastWork least_work_;
  std::vector<int32_t> tokens_;
  const int64_t prompt_tokens_;
  const std::vector<int32_t> ending_ids_;  // eos and stop ids, ascending
  TokenHistory history_;
  std::shared_ptr<OutputMask> mask_;
  bool mask_after_ = false;
  BlockTable blocks_;
  int64_t computed_ = 0;
  int64_t furthest_ = 0;                // largest computed_ of a step so far
  int64_t computed_prompt_tokens_ = 0;  // by steps, each once
  int64_t cached_prompt_tokens_ = 0;
  // The first wanted row that was not delivered: Forward: index into the positions asked for;
  // otherwise its position, all from there to the target being wanted.
  int64_t next_row_ = 0;
  int64_t rows_in_flight_ = 0;  // from there on
  int64_t tokens_ahead_ = 0;    // they give and that are not known to be the last
  int64_t job_ = 0;
  // Positions from here on are forced tokens, computed as part of decoding; -1: none are.
  int64_t forced_from_ = -1;
  int64_t forced_tokens_ = 0;  // of the output
  std::vector<int32_t> draft_;
  size_t draft_begin_ = 0;  // those before it were judged
  int64_t draft_in_flight_ = 0;
  std::shared_ptr<DraftMasks> draft_masks_;
  bool by_model_ = false;
  std::unique_ptr<Guessing> guessing_;
  SpeculationCounts speculation_;
  int64_t continuation_ = 0;
  bool queued_ = true;
  bool running_ = false;
  bool awaits_mask_ = false;
  bool finished_ = false;
  int64_t preemptions_ = 0;
  int64_t steps_ = 0;            // begun
  int64_t steps_in_flight_ = 0;  // of them
  SequenceTimes times_;
};

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_SEQUENCE_H_
