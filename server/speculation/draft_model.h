// Drafts from a second, smaller model with the same tokenizer.
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

// Guesses with the noise of the sequence's own request (same seed, output, position and token), so
// that it guesses right as often as the two models agree. Has its own KV blocks; all sequences of a
// call are computed in common batches, a token of each a round. Where blocks are short, the
// sequence that was in a call longest ago loses its own. Not thread-safe: the engine thread owns
// it.
class DraftModel final : public DraftSource {
 public:
  // `model` outlives it. `max_prefill_tokens`, >= 1: the most that a call computes of what stands
  // before the sequences' last tokens, those that lack the least first; the others guess in a later
  // call.
  DraftModel(LanguageModel& model, int64_t max_prefill_tokens);
  // With as many as a batch of the model.
  explicit DraftModel(LanguageModel& model) : DraftModel(model, model.limits().max_tokens) {}

  // DraftSource. At least the last token is to be computed.
  int64_t Lag(int64_t sequence, std::span<const int32_t> tokens) const override;
  absl::Status Propose(std::span<Guess> guesses) override;
  void Forget(int64_t sequence) override;

  int64_t used_blocks() const { return pool_.used_blocks(); }

 private:
  // Of one sequence.
  struct State {
    std::vector<int32_t> tokens;  // computed: of the sequence, then of a draft
    std::vector<BlockId> blocks;  // theirs
    int64_t call = 0;             // the last one that it was in

    int64_t computed() const { return static_cast<int64_t>(tokens.size()); }
    int64_t num_blocks() const { return static_cast<int64_t>(blocks.size()); }
  };
  // A sequence in a call.
  struct Work {
    Guess* guess;
    State* state;
    int64_t until;       // tokens to compute, those of the draft included
    int64_t chunk = 0;   // tokens in the batch
    bool draws = false;  // and a job: the next one of the draft

    // That are known.
    int64_t tokens() const {
      return static_cast<int64_t>(guess->tokens.size() + guess->draft.size());
    }
    int32_t token(int64_t position) const;
  };

  std::vector<Work> Plan(std::span<Guess> guesses);
  // Forgets what the state has besides the first `tokens` tokens.
  void Truncate(State& state, int64_t tokens);
  // The number of blocks that the state of a sequence in this call can have, up to `wanted`.
  int64_t Obtainable(const State& state, int64_t wanted) const;
  // Allocates the missing blocks for so many tokens, which are not more.
  void Grow(State& state, int64_t tokens);
  void ForgetOldest();
  // What is left to compute, within the model's limits; false: nothing.
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
