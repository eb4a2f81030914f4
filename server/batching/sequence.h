// One running generation or evaluation: its tokens, how far it is computed, when it ends.
#ifndef TLM_SERVER_BATCHING_SEQUENCE_H_
#define TLM_SERVER_BATCHING_SEQUENCE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/time/time.h"
#include "model/kv_cache/block_pool.h"
#include "server/batching/request.h"
#include "server/batching/token_stream.h"

namespace tlm {

// KV blocks that hold this many tokens.
int64_t BlocksFor(int64_t tokens);

enum class SequenceState {
  kWaiting,     // holds no blocks: not started, or preempted
  kPrefilling,  // more than one token away from its next result, or a Forward request
  kDecoding,    // one token away from its next token
  kFinished,
};

// How a sequence ended well.
struct Finish {
  FinishReason reason = FinishReason::kLength;
  int32_t matched_token = -1;
};

// Positions [0, computed) are in the KV cache, [computed, target) are not yet; the target is where
// the next result comes from or, for Forward, the last one:
//
//   Generate  p p p p p g g        p prompt, g generated; the logits at target - 1 give the next g
//             |-----|   |          once computed reaches the target
//                computed = 3, target = 7: preempted after 2 tokens, being recomputed
//
// Not thread-safe: the engine thread owns it.
class Sequence {
 public:
  // `number` tells sequences of one engine apart, in the order of their arrival.
  Sequence(Request&& request, int64_t number);
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  // Without the prompt, which tokens() begins with.
  const Request& request() const { return request_; }
  TokenStream& stream() const { return *request_.stream; }
  int64_t number() const { return number_; }
  bool generates() const { return request_.generate.has_value(); }
  SequenceState state() const;

  std::span<const int32_t> tokens() const { return tokens_; }  // prompt, then generated
  int64_t prompt_tokens() const { return prompt_tokens_; }
  int64_t generated_tokens() const { return Length() - prompt_tokens_; }

  int64_t computed() const { return computed_; }
  int64_t target() const;
  int64_t remaining() const { return target() - computed_; }
  // A step has put the next `count` positions into the cache.
  void MarkComputed(int64_t count);

  // Results wanted from the next `count` positions.
  int64_t RowsWanted(int64_t count) const;
  // As many of the remaining positions as fit both limits.
  int64_t LongestChunk(int64_t max_tokens, int64_t max_rows) const;
  // Forward: the positions whose rows have not been delivered.
  std::span<const int64_t> wanted_positions() const;

  // Generate: ids that the next draw must leave out, ascending: those that would end the sequence
  // before it has min_new_tokens.
  std::span<const int32_t> banned_tokens() const;
  // Generate: adds a drawn token. The sequence ends with an eos or stop id that is not among the
  // first min_new_tokens, with the last token asked for, or when it fills `max_context`.
  std::optional<Finish> Append(int32_t token, int64_t max_context);
  // Forward: the first of wanted_positions() was delivered.
  std::optional<Finish> MarkRowDelivered();

  // Takes what is missing for `tokens` tokens; false, and nothing is taken, when the pool has less.
  [[nodiscard]] bool Grow(BlockPool& pool, int64_t tokens);
  // Gives all blocks back: nothing is computed any more.
  void ReleaseBlocks(BlockPool& pool);
  // It held blocks at some time.
  bool admitted() const { return blocks_peak_ > 0; }
  // In the order of the positions they hold.
  std::span<const BlockId> blocks() const { return blocks_; }

  // Running is the scheduler's word: holds blocks and may be in batches.
  void set_running(bool running) { running_ = running; }
  void CountPreemption() { ++preemptions_; }
  int64_t preemptions() const { return preemptions_; }

  // The step that computes it first begins; returns the time it waited.
  absl::Duration MarkStarted(absl::Time now);
  bool started() const { return started_.has_value(); }
  // The first token was drawn.
  void MarkFirstToken(absl::Time now) { first_token_ = now; }
  // Closes the sequence; what is to be told at the end. `finish` counts when `status` is OK.
  StreamEnd End(const absl::Status& status, const Finish& finish, absl::Time now);

 private:
  int64_t Length() const { return static_cast<int64_t>(tokens_.size()); }

  Request request_;
  const int64_t number_;
  std::vector<int32_t> tokens_;
  const int64_t prompt_tokens_;
  const std::vector<int32_t> ending_ids_;  // eos and stop ids, ascending
  std::vector<BlockId> blocks_;
  int64_t computed_ = 0;
  int64_t furthest_ = 0;  // largest computed_ so far
  size_t next_row_ = 0;   // into forward->positions
  bool running_ = false;
  bool finished_ = false;
  int64_t preemptions_ = 0;
  int64_t steps_ = 0;
  int64_t blocks_peak_ = 0;
  std::optional<absl::Time> started_;
  std::optional<absl::Time> first_token_;
};

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_SEQUENCE_H_
