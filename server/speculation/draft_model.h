// Makes drafts with a second, smaller model with the same tokenizer.
#ifndef TLM_SERVER_SPECULATION_DRAFT_MODEL_H_
#define TLM_SERVER_SPECULATION_DRAFT_MODEL_H_

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "model/kv_cache/block_pool.h"
#include "model/ops/batch.h"
#include "model/transformer_lm/language_model.h"
#include "server/speculation/draft.h"

namespace tlm {

// Samples with the noise of the sequence's own request (same seed, output, position and token), so
// that a guess is right whenever the two models agree. Has its own KV blocks. All sequences of a
// call share batches, one token of each per round. When blocks are short, the sequence whose last
// call is the oldest loses its blocks. Not thread-safe: the engine thread owns it.
class DraftModel final : public DraftSource {
 public:
  // `model` outlives this object. `max_prefill_tokens`, >= 1: the most tokens before the sequences'
  // last ones that a call computes. Sequences that lack the fewest come first; the others guess in
  // a later call.
  DraftModel(LanguageModel& model, int64_t max_prefill_tokens);
  // Allows as many prefill tokens as a batch of the model has.
  explicit DraftModel(LanguageModel& model) : DraftModel(model, model.limits().max_tokens) {}

  // DraftSource. Lag is at least 1: the last token must be computed again.
  int64_t Lag(int64_t sequence, std::span<const int32_t> tokens) const override;
  absl::Status Propose(std::span<Guess> guesses) override;
  void Forget(int64_t sequence) override;

  int64_t used_blocks() const { return pool_.used_blocks(); }

 private:
  // The state of one sequence.
  struct State {
    std::vector<int32_t> tokens;  // computed: of the sequence, then of a draft
    std::vector<BlockId> blocks;  // the tokens' blocks
    int64_t call = 0;             // the last call with this sequence

    int64_t computed() const { return static_cast<int64_t>(tokens.size()); }
    int64_t num_blocks() const { return static_cast<int64_t>(blocks.size()); }
  };
  // A sequence in a call.
  struct Work {
    Guess* guess;
    State* state;
    int64_t until;       // tokens to compute, draft tokens included
    int64_t chunk = 0;   // tokens in the batch
    bool draws = false;  // the chunk has a job for the next draft token

    // Returns the number of known tokens.
    int64_t tokens() const {
      return static_cast<int64_t>(guess->tokens.size() + guess->draft.size());
    }
    int32_t token(int64_t position) const;
  };

  std::vector<Work> Plan(std::span<Guess> guesses);
  // Forgets all tokens of the state but the first `tokens`.
  void Truncate(State& state, int64_t tokens);
  // Returns the number of blocks, up to `wanted`, that the state of a sequence in this call can
  // have.
  int64_t Obtainable(const State& state, int64_t wanted) const;
  // Allocates the blocks that `tokens` tokens lack; Obtainable must allow them.
  void Grow(State& state, int64_t tokens);
  void ForgetOldest();
  // Makes a batch of the work left, within the model's limits; false: no work is left.
  bool BuildBatch(std::span<Work> work);
  void AppendChunk(const Work& work);
  void TakeResults(std::span<Work> work, const BatchResult& result);

  LanguageModel& model_;
  const int64_t max_prefill_tokens_;
  BlockPool pool_;
  std::unordered_map<int64_t, State> states_;  // by sequence
  int64_t calls_ = 0;
  Batch batch_;
};

}  // namespace tlm

#endif  // TLM_SERVER_SPECULATION_DRAFT_MODEL_H_
