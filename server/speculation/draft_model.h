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
#include "model/transformer_lm/language_model.h"
#include "server/speculation/draft.h"

namespace tlm {

// Guesses with the noise of the sequence's own request (same seed, output, position and token), so
// that it guesses right as often as the two models agree. Has its own KV blocks; all sequences of a
// call are computed in common batches, a token of each a round. Not thread-safe: the engine thread
// owns it.
class DraftModel final : public DraftSource {
 public:
  // `model` outlives it.
  explicit DraftModel(LanguageModel& model);
  ~DraftModel() override;

  // DraftSource.
  int64_t Behind(int64_t sequence, std::span<const int32_t> tokens) const override;
  absl::Status Propose(std::span<Guess> guesses) override;
  void Forget(int64_t sequence) override;

 private:
  struct State;

  LanguageModel& model_;
  BlockPool pool_;
  std::unordered_map<int64_t, std::unique_ptr<State>> states_;
};

}  // namespace tlm

#endif  // TLM_SERVER_SPECULATION_DRAFT_MODEL_H_
