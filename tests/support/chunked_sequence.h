// Sequences cut into batches by hand, for tests of whole models.
#ifndef TLM_TESTS_SUPPORT_CHUNKED_SEQUENCE_H_
#define TLM_TESTS_SUPPORT_CHUNKED_SEQUENCE_H_

#include <cstdint>
#include <random>
#include <vector>

#include "model/ops/batch.h"

namespace tlm {

inline std::vector<int32_t> RandomIds(int64_t count, int64_t vocab, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(vocab)));
  }
  return ids;
}

// A sequence under way: its tokens and its blocks, spread over the pool.
struct ChunkedSequence {
  std::vector<int32_t> ids;
  std::vector<int32_t> blocks;  // at most kMaxBlocks
  int64_t done = 0;

  static constexpr int64_t kMaxBlocks = 4;
};

// Adds the next `count` tokens of `sequence` to the batch, all of them with logits for the host.
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

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_CHUNKED_SEQUENCE_H_
