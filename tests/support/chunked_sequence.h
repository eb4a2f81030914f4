// Cuts sequences into batches by hand, for tests of whole models.
#ifndef TLM_TESTS_SUPPORT_CHUNKED_SEQUENCE_H_
#define TLM_TESTS_SUPPORT_CHUNKED_SEQUENCE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "model/ops/batch.h"
#include "model/transformer_lm/language_model.h"
#include "tests/support/status_matchers.h"

namespace tlm {

inline std::vector<int32_t> RandomIds(int64_t count, int64_t vocab, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(vocab)));
  }
  return ids;
}

// A sequence in progress: its tokens and its blocks, spread over the pool.
struct ChunkedSequence {
  std::vector<int32_t> ids;
  std::vector<int32_t> blocks;  // at most kMaxBlocks
  int64_t done = 0;

  static constexpr int64_t kMaxBlocks = 4;
};

// Adds the next `count` tokens of `sequence` to the batch; all have logits for the host.
inline void AddChunk(const ChunkedSequence& sequence, int64_t count, Batch* batch) {
  for (int64_t i = 0; i < count; ++i) {
    batch->host_rows.push_back(static_cast<int32_t>(batch->logits_rows.size()));
    batch->logits_rows.push_back(static_cast<int32_t>(batch->token_ids.size()));
    batch->token_ids.push_back(sequence.ids[static_cast<size_t>(sequence.done + i)]);
    batch->positions.push_back(static_cast<int32_t>(sequence.done + i));
    batch->sequence_of.push_back(static_cast<int32_t>(batch->sequences));
  }
  batch->max_blocks = ChunkedSequence::kMaxBlocks;
  batch->block_tables.insert(batch->block_tables.end(), sequence.blocks.begin(),
                             sequence.blocks.end());
  ++batch->sequences;
  batch->block_tables.resize(static_cast<size_t>(batch->sequences * batch->max_blocks), 0);
}

// Returns all logits of `ids`, computed alone: first `first` tokens, then `chunk` at a time.
inline std::vector<float> RunAlone(LanguageModel& model, const std::vector<int32_t>& ids,
                                   int64_t first, int64_t chunk) {
  ChunkedSequence sequence{ids, {7, 2, 11, 5}, 0};
  std::vector<float> logits;
  const auto total = static_cast<int64_t>(ids.size());
  while (sequence.done < total) {
    const int64_t next = sequence.done == 0 ? first : chunk;
    const int64_t count = std::min(next, total - sequence.done);
    Batch batch;
    AddChunk(sequence, count, &batch);
    const auto result = model.Forward(batch);
    EXPECT_THAT(result, IsOk());
    logits.insert(logits.end(), result->logits.begin(), result->logits.end());
    sequence.done += count;
  }
  return logits;
}
inline std::vector<float> RunAlone(LanguageModel& model, const std::vector<int32_t>& ids,
                                   int64_t chunk) {
  return RunAlone(model, ids, chunk, chunk);
}

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_CHUNKED_SEQUENCE_H_
