#include "server/batching/batch_builder.h"

#include <algorithm>

namespace tlm {
namespace {

void AppendTokens(const Chunk& chunk, int32_t index, Batch* batch) {
  const auto tokens = chunk.sequence->tokens().subspan(static_cast<size_t>(chunk.first_position),
                                                       static_cast<size_t>(chunk.num_tokens));
  batch->token_ids.insert(batch->token_ids.end(), tokens.begin(), tokens.end());
  for (int64_t i = 0; i < chunk.num_tokens; ++i) {
    batch->positions.push_back(static_cast<int32_t>(chunk.first_position + i));
  }
  batch->sequence_of.insert(batch->sequence_of.end(), tokens.size(), index);
}

// `first_token`: index in the batch of the chunk's first token.
void AppendLogitsRows(const Chunk& chunk, int64_t first_token, Batch* batch) {
  for (int64_t row = 0; row < chunk.num_rows; ++row) {
    const int64_t position = chunk.sequence->WantedPosition(row);
    batch->logits_rows.push_back(
        static_cast<int32_t>(first_token + position - chunk.first_position));
  }
}

void AppendBlockTables(const StepPlan& plan, Batch* batch) {
  size_t width = 0;
  for (const Chunk& chunk : plan.chunks) {
    width = std::max(width, chunk.sequence->blocks().size());
  }
  batch->max_blocks = static_cast<int64_t>(width);
  batch->block_tables.assign(plan.chunks.size() * width, 0);
  auto row = batch->block_tables.begin();
  for (const Chunk& chunk : plan.chunks) {
    const auto blocks = chunk.sequence->blocks();
    std::copy(blocks.begin(), blocks.end(), row);
    row += static_cast<int64_t>(width);
  }
}

}  // namespace

void BuildBatch(const StepPlan& plan, Batch* batch) {
  batch->Clear();
  batch->sequences = static_cast<int64_t>(plan.chunks.size());
  int32_t index = 0;
  for (const Chunk& chunk : plan.chunks) {
    const int64_t first_token = batch->tokens();
    AppendTokens(chunk, index++, batch);
    AppendLogitsRows(chunk, first_token, batch);
  }
  AppendBlockTables(plan, batch);
}

}  // namespace tlm
