// The speed of a model alone: prefill and decoding, batch after batch, without a queue.
#ifndef TLM_TESTS_BENCHMARKS_ENGINE_MODEL_RUNS_H_
#define TLM_TESTS_BENCHMARKS_ENGINE_MODEL_RUNS_H_

#include <cstdint>
#include <random>
#include <vector>

#include "absl/status/statusor.h"
#include "model/ops/batch.h"
#include "model/transformer_lm/language_model.h"

namespace tlm::bench {

// Some sequences of equal length, each with blocks of its own. Prompts are uniform token ids.
class ModelRuns {
 public:
  // `model` has kv blocks for `sequences` contexts of `context` tokens.
  ModelRuns(LanguageModel& model, int64_t sequences, int64_t context);

  // Prefills `tokens` tokens from the beginning, `chunk` at a time; the seconds until the first
  // token.
  absl::StatusOr<double> Prefill(int64_t tokens, int64_t chunk);

  // Gives every sequence `depth` tokens: computed for one, its blocks copied to the others.
  absl::Status Fill(int64_t depth, int64_t chunk);
  // Forgets all but the first `depth` tokens of every sequence.
  void Rewind(int64_t depth);
  // Decodes `steps` greedy tokens of every sequence, one step ahead where the model can; the
  // seconds from the beginning to the first step's results and from each step's to the next's,
  // [steps].
  absl::StatusOr<std::vector<double>> Decode(int64_t steps);

 private:
  absl::StatusOr<BatchResult> Compute(int64_t first, int64_t count, bool last);
  void StartBatch(Batch* batch) const;
  void AddTable(int64_t sequence, Batch* batch) const;
  // The next token of every sequence: sampled by the last batch, or `ids`.
  void FillDecode(const std::vector<int32_t>* ids, int64_t position, Batch* batch) const;

  LanguageModel& model_;
  const int64_t sequences_;
  const int64_t max_blocks_;  // of a sequence
  int64_t depth_ = 0;         // tokens of every sequence that are computed
  std::mt19937_64 random_{1};
  SamplingParams greedy_;
  TokenHistory history_;
  std::vector<int32_t> next_;  // [sequences]
};

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_ENGINE_MODEL_RUNS_H_
