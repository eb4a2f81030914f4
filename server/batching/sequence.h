// Tracks one running generation or evaluation: its tokens, its progress and its end.
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
  kPrefilling,  // computes more than one token before its next sample, or samples nothing
  kDecoding,    // computes one token, a forced run or a draft before its next sample
  kFinished,
};

// When a sequence arrived, began and sampled its tokens.
class SequenceTimes {
 public:
  explicit SequenceTimes(absl::Time arrival) : arrival_(arrival) {}
  // Returns the times of a branch, which began with its parent.
  SequenceTimes ForBranch() const;

  // Returns the time from arrival to start.
  absl::Duration Start(absl::Time now);
  bool started() const { return started_.has_value(); }
  void FirstToken(absl::Time now) { first_token_ = now; }
  // Returns the time since the previous token, zero for the first one.
  absl::Duration Token(absl::Time now);
  // Fills in the times of a sequence that ends now.
  void ReportTo(absl::Time now, StreamEnd& end) const;

 private:
  absl::Time arrival_;
  std::optional<absl::Time> started_;
  std::optional<absl::Time> first_token_;
  std::optional<absl::Time> last_token_;
};

// Positions [0, computed) are in the KV cache, [computed, target) are not yet. Results are made
// from rows, the logits at wanted positions below the target:
//
//   Generate  p p p p p g g        p prompt, g generated; the row at 6 gives the next g. With
//             |-----|       |      prompt scores, rows 0 to 3 were wanted before the first g.
//                computed = 3, target = 7: preempted after 2 tokens, being recomputed
//
//   Forward   p p p p p            Rows at the requested positions; the target follows the last.
//
//   Score     p p p p p c c c      c the continuation in progress. Row 4 scores the first token
//             |---------|   |      of every continuation, rows 5 and 6 the rest of this one.
//                computed = 5, target = 7: it has just replaced the previous continuation
//
// A launched step counts as computed, and the next step may be planned while its rows are in
// flight: the plan knows that one more token follows, but not its id. `d` is being sampled:
//
//   Generate  p p p p p g d        target = 7 and decoding; or, if d is known to be the last
//                       |          token, target = 6 and nothing is left to plan
//                computed = 6
//
// The next step may even be launched before d is known; two tokens are then in flight until the
// first step ends. If d ends the output, the token after it is surplus: no result contains it.
//
// A request for several outputs is one sequence until its first token. Then its branches become
// sequences that share the full blocks of the prompt:
//
//   parent    [p p p p][p p g g]   blocks of 4 tokens
//   branch 0  [  same ][p p g g]   its own copy of the last block, because it will write there
//
// Constrained outputs have tokens that need no sampling. Several in a row are appended at once and
// computed like a prompt, but as part of decoding:
//
//   Generate  p p p p p g g f f    target = 9, the row at 8 gives the next token
//                          |
//                       computed = 6
//
// A draft (guessed or claimed tokens) is computed like forced tokens, but each of its rows samples
// a token. Sampled tokens are appended up to and including the first that differs from the draft;
// later rows are surplus, and their positions are recomputed:
//
//   Generate  p p p p p g d d d    target = 9 with the draft, four rows from position 5 on
//                         x        the second sample differs from the second draft token:
//             p p p p p g d x      two more tokens, computed = 7, target = 8
//
// A claimed output is a draft from the start, computed in several chunks; the sequence ends with
// it.
//
// Not thread-safe: the engine thread owns it.
class Sequence {
 public:
  // `number` identifies a sequence in its engine and orders sequences by arrival. The numbers after
  // it, one for each branch stream, belong to the same request.
  Sequence(Request&& request, int64_t number);
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  // Its prompt has been moved to tokens(). Branch streams that were taken are null.
  const Request& request() const { return request_; }
  TokenStream& stream() const { return *request_.stream; }
  int64_t number() const { return number_; }
  // Returns the number of the request's first sequence, shared by all its sequences.
  int64_t request_number() const { return request_number_; }
  bool generates() const { return request_.generate() != nullptr; }
  // Its results are rows; its token stream bounds them.
  bool delivers_rows() const { return request_.forward() != nullptr; }
  SequenceState state() const;

  std::span<const int32_t> tokens() const { return tokens_; }  // prompt, then generated or given
  int64_t prompt_tokens() const { return prompt_tokens_; }
  int64_t input_tokens() const { return input_tokens_; }       // InputTokens of the request
  const LeastWork& least_work() const { return least_work_; }  // of the request, without cache
  int64_t generated_tokens() const { return Length() - prompt_tokens_; }
  const TokenHistory& history() const { return history_; }  // empty when no penalty asks for it

  // Returns the mask of the tokens that may follow; null when all may. mask_after: true while draft
  // rows are pending: the mask after the last token is not needed yet.
  OutputMask* mask() const { return mask_.get(); }
  const std::shared_ptr<OutputMask>& shared_mask() const { return mask_; }
  // Called once for a Generate request with a constraint; each branch makes its own mask.
  void SetMask(std::shared_ptr<OutputMask> mask) { mask_ = std::move(mask); }
  void set_mask_after(bool behind) { mask_after_ = behind; }
  bool mask_after() const { return mask_after_; }

  int64_t computed() const { return computed_; }
  int64_t target() const;
  // Also 0 when the rows in flight are the last ones, while a draft is in flight, and while the
  // sequence awaits its mask.
  int64_t remaining() const;
  // Returns the most positions that may be computed before a new token is sampled.
  int64_t cache_tokens() const;
  // A step has put the next `count` positions into the KV cache.
  void MarkComputed(int64_t count);
  // A step that computes the next `count` positions has been launched. Its rows are in flight until
  // Append or MarkRowDelivered uses them.
  void MarkLaunched(int64_t count, int64_t max_context);
  // The oldest launched step with this sequence has ended.
  void MarkStepEnded() { --steps_in_flight_; }
  // Returns true while a launched step that has not ended points to this sequence.
  bool in_flight() const { return steps_in_flight_ > 0; }
  // Generate: tokens after tokens() that are being sampled.
  int64_t tokens_in_flight() const;
  // The index of the last of these tokens among its batch's jobs, as the batch builder noted it.
  void set_job(int64_t job) { job_ = job; }
  int64_t job() const { return job_; }
  // Returns the number of results in flight; 0 after a row that made all later rows surplus.
  int64_t rows_in_flight() const { return rows_in_flight_; }
  // Returns the room that its token stream has left once the results in flight arrive.
  int64_t Room() const { return stream().Room() - rows_in_flight_; }

  // Returns the number of rows wanted from the next `count` positions.
  int64_t RowsWanted(int64_t count) const;
  // Returns the most remaining positions that fit both limits.
  int64_t LongestChunk(int64_t max_tokens, int64_t max_rows) const;
  // Returns the position of the n-th wanted row (from 0) below the target that was not delivered.
  int64_t WantedPosition(int64_t n) const;
  // Returns the same, without the rows in flight.
  int64_t UnplannedPosition(int64_t n) const { return WantedPosition(rows_in_flight_ + n); }

  // Score: the index of the continuation whose tokens follow the prompt.
  int64_t continuation() const { return continuation_; }
  // Generate: the ids that sampling tokens()[position] must leave out, ascending: the ending ids
  // before min_new_tokens.
  std::span<const int32_t> BannedTokens(int64_t position) const;
  // Generate: the first row in flight sampled `token`. Returns the end, if it is one.
  std::optional<Finish> Append(int32_t token, int64_t max_context);
  // Generate, decoding, with nothing in flight: appends `token`, which MayAppend allows. Returns
  // the end, if it is one.
  std::optional<Finish> AppendForced(int32_t token, int64_t max_context);
  bool MayAppend(int32_t token) const;
  // Generate: the first row in flight sampled nothing. It and all later rows are computed again
  // once the mask is ready.
  void CancelFirstRow();
  void set_awaits_mask(bool awaits_mask) { awaits_mask_ = awaits_mask; }
  bool awaits_mask() const { return awaits_mask_; }

  // Generate: the request claims the output's tokens; they are only compared with sampled ones.
  bool verifies() const { return generates() && !request_.generate()->claimed.empty(); }
  // Generate, decoding without forced tokens, with nothing in flight and no branches: guesses that
  // `ids` follow tokens(). Ids that the next step does not compute are dropped.
  void SetDraft(std::vector<int32_t> ids, bool by_model = false);
  // Guessed or claimed tokens after tokens() that are not judged yet.
  std::span<const int32_t> draft() const { return std::span(draft_).subspan(draft_begin_); }
  // Returns the number of tokens of draft() that a launched step computes.
  int64_t draft_in_flight() const { return draft_in_flight_; }
  // Returns the number of draft tokens in a chunk of the next `count` tokens.
  int64_t DraftTokens(int64_t count) const;
  const SpeculationCounts& speculation() const { return speculation_; }
  // Returns true when a DraftSource made the last draft.
  bool drafted_by_model() const { return by_model_; }
  // The lookup that makes guesses and the record that judges them; null until SetGuessing.
  struct Guessing {
    TokenLookup lookup;
    MatchRecord by_model{MatchRecord::kOwnMemory};
  };
  Guessing* guessing() const { return guessing_.get(); }
  void SetGuessing(std::unique_ptr<Guessing> guessing) { guessing_ = std::move(guessing); }
  // Constrained: the masks after the draft tokens that the next step computes.
  void SetDraftMasks(std::shared_ptr<DraftMasks> masks) { draft_masks_ = std::move(masks); }
  const DraftMasks* draft_masks() const { return draft_masks_.get(); }
  // Generate, before the first step: the end, if the tokens in the request are a complete output.
  std::optional<Finish> FinishedBefore(int64_t max_context) const;
  // A row that samples nothing: the first wanted row was delivered. After the last row of a
  // continuation the next continuation begins. Returns the end, if this was the last row.
  std::optional<Finish> MarkRowDelivered();

  // Returns the number of outputs that have not become sequences yet.
  int64_t branches() const;
  // Makes sequences of all of them, without blocks. Streams that were taken before are skipped.
  std::vector<std::unique_ptr<Sequence>> TakeBranches();
  // Drops one output, by its index into branch_streams (not yet taken), and returns its token
  // stream.
  std::shared_ptr<TokenStream> TakeBranchStream(size_t branch);

  // Returns how many tokens AdoptPrefix would find now.
  int64_t CachedTokens(const PrefixCache& cache);
  // For a sequence without blocks: becomes a user of the cached blocks that hold the start of its
  // tokens, up to the first wanted row, and counts their tokens as computed. Does nothing when the
  // request bypasses the cache.
  void AdoptPrefix(PrefixCache& cache);
  // Returns the number of tokens that AdoptPrefix found before the first step, at most the
  // prompt's.
  int64_t cached_prompt_tokens() const { return cached_prompt_tokens_; }
  // Call after a row was finite, which proves that everything before it is sound. Publishes the
  // full unpublished blocks of the first `tokens` computed tokens and replaces blocks that others
  // have published. Leaves out blocks that will be overwritten (scored continuations).
  void PublishBlocks(int64_t tokens, PrefixCache& cache);
  // Publishes none of its current and future blocks until ReleaseBlocks.
  void StopPublishing() { blocks_.StopPublishing(); }

  // Takes the blocks missing for `tokens` tokens; false, with nothing taken, when the pool has too
  // few.
  [[nodiscard]] bool Grow(BlockPool& pool, int64_t tokens) { return blocks_.Grow(pool, tokens); }
  // A branch without blocks becomes a user of its parent's prompt blocks and takes one block for a
  // partly filled last one, whose contents the caller copies; its prompt is then computed. False,
  // with nothing taken, when the pool has no block or the parent was preempted before its last
  // prompt row arrived.
  [[nodiscard]] bool ShareBlocks(const Sequence& parent, BlockPool& pool);
  // Returns the blocks that a dropped draft had taken.
  void TrimBlocks(BlockPool& pool);
  // Returns all blocks; nothing counts as computed after that.
  void ReleaseBlocks(BlockPool& pool);
  // Returns the blocks in the order of the positions they hold.
  std::span<const BlockId> blocks() const { return blocks_.blocks(); }

  // Returns true while the queue counts its request as waiting.
  bool queued() const { return queued_; }
  void LeaveQueue() { queued_ = false; }
  // Set by the scheduler: the sequence holds blocks and may be in batches.
  void set_running(bool running) { running_ = running; }
  void CountPreemption() { ++preemptions_; }
  int64_t preemptions() const { return preemptions_; }

  // The first step that computes it begins; returns the time from arrival.
  absl::Duration MarkStarted(absl::Time now) { return times_.Start(now); }
  bool started() const { return times_.started(); }
  // The first token was sampled.
  void MarkFirstToken(absl::Time now) { times_.FirstToken(now); }
  // A token was sampled; returns the time since the previous one, zero for the first one here.
  absl::Duration MarkToken(absl::Time now) { return times_.Token(now); }
  // Closes the sequence and returns the report for its stream. `finish` counts when `status` is OK.
  // Work shared by several outputs is reported by the parent alone.
  StreamEnd End(const absl::Status& status, const Finish& finish, absl::Time now);
  // Returns the report for an output that ends before it has become a sequence.
  StreamEnd BranchEnd(const absl::Status& status, absl::Time now) const;

 private:
  // Makes a branch; the parent has computed the prompt.
  Sequence(const Sequence& parent, size_t branch);

  int64_t Length() const { return static_cast<int64_t>(tokens_.size()); }
  // Returns the first wanted row not in flight, or the end of the rows.
  int64_t NextRow() const { return next_row_ + rows_in_flight_; }
  std::optional<Finish> BeginContinuation();
  // Returns the number of draft positions to compute; after the last claimed token nothing is
  // sampled.
  int64_t DraftAhead() const;
  // Compares the token sampled after tokens() with the draft; true if they agree.
  bool JudgeDraft(int32_t token);
  void DropDraft();
  // Returns the number of full blocks before the next wanted row that will not be overwritten;
  // these may be taken from the cache.
  int64_t CacheableBlocks() const;

  Request request_;
  const int64_t number_;
  const int64_t request_number_;
  const int64_t input_tokens_;
  const LeastWork least_work_;
  std::vector<int32_t> tokens_;
  const int64_t prompt_tokens_;
  TokenHistory history_;
  std::shared_ptr<OutputMask> mask_;
  bool mask_after_ = false;
  BlockTable blocks_;
  int64_t computed_ = 0;
  int64_t furthest_ = 0;                // largest computed_ of any step so far
  int64_t computed_prompt_tokens_ = 0;  // computed by steps, each token counted once
  int64_t cached_prompt_tokens_ = 0;
  // The first wanted row that was not delivered. Forward: an index into the requested positions;
  // otherwise its position (all positions from there to the target are wanted).
  int64_t next_row_ = 0;
  int64_t rows_in_flight_ = 0;  // rows in flight from next_row_ on
  int64_t tokens_ahead_ = 0;    // tokens that these rows give and that are not known to be the last
  int64_t job_ = 0;
  // Positions from here on are forced tokens, computed as part of decoding; -1: no forced tokens.
  int64_t forced_from_ = -1;
  int64_t forced_tokens_ = 0;  // forced tokens of the output
  std::vector<int32_t> draft_;
  size_t draft_begin_ = 0;  // tokens before it were judged
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
  int64_t steps_ = 0;            // steps begun
  int64_t steps_in_flight_ = 0;  // begun and not ended
  SequenceTimes times_;
};

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_SEQUENCE_H_
