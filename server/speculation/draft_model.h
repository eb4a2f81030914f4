// Drafts from a second, smaller model with the same tokenizer.
#ifndef TLM_SERVER_SPECULATION_DRAFT_MODEL_H_
#define TLM_SERVER_SPECULATION_DRAFT_MODEL_H_

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "model/kv_cache/block_pool.h"
#include "model/kv_cache/block_table.h"
#include "model/sampling/sampling_params.h"
#include "model/sampling/token_history.h"
#include "model/transformer_lm/language_model.h"

namespace tlm {

// Guesses with the noise of the sequence's own request (same seed, output, position and token), so
// that it guesses right as often as the two models agree. Has its own KV blocks; all sequences of a
// call are computed in common batches, a token of each a round. Not thread-safe: the engine thread
// owns it.
class DraftModel {
 public:
  struct Guess {
    int64_t sequence = 0;             // Sequence::number
    std::span<const int32_t> tokens;  // of the sequence, so far
    int64_t max_tokens = 0;           // to guess, >= 1
    const SamplingParams* sampling = nullptr;
    const TokenHistory* history = nullptr;  // of `tokens`
    uint32_t output_index = 0;
    std::vector<int32_t> draft = {};  // the result; shorter, also empty, where there is no room
  };

  // `model` outlives it.
  explicit DraftModel(LanguageModel& model);
  ~DraftModel();

  // The tokens it has to compute before it guesses for this sequence: what it would cost to begin.
  int64_t Behind(int64_t sequence, std::span<const int32_t> tokens) const;
  // INTERNAL: a device fault; nothing is guessed, and it knows of no sequence any more.
  absl::Status Propose(std::span<Guess> guesses);
  // The sequence has ended, or lost its place: its blocks are free.
  void Forget(int64_t sequence);

 private:
  struct State;

  LanguageModel& model_;
  BlockPool pool_;
  std::unordered_map<int64_t, std::unique_ptr<State>> states_;
};

}  // namespace tlm

#endif  // TLM_SERVER_SPECULATION_DRAFT_MODEL_H_
