#include "server/batching/batch_builder.h"

#include <algorithm>

namespace tlm {
namespace {

void AppendTokens(const Chunk& chunk, int32_t index, Batch* batch) {
  const Sequence& sequence = *chunk.sequence;
  const int64_t end = chunk.first_position + chunk.num_tokens;
  const int64_t length = static_cast<int64_t>(sequence.tokens().size());
  for (int64_t position = chunk.first_position; position < end; ++position) {
    const auto behind = static_cast<size_t>(std::max(position - length, int64_t{0}));
    batch->token_ids.push_back(position < length ? sequence.tokens()[static_cast<size_t>(position)]
                               : behind < sequence.draft().size() ? sequence.draft()[behind]
                                                                  : PendingToken(sequence.job()));
    batch->positions.push_back(static_cast<int32_t>(position));
    batch->sequence_of.push_back(index);
  }
}

// Appends the jobs that sample the token at `position` from logits row `row`.
void AppendJobs(Sequence& sequence, int64_t position, int32_t row, Batch* batch) {
  const GenerateWork& work = *sequence.request().generate();
  // Draft tokens before `position`.
  const auto drafted = static_cast<size_t>(
      sequence.draft().empty() ? 0 : position - static_cast<int64_t>(sequence.tokens().size()));
  const TokenMask* const mask = drafted > 0 && sequence.mask() != nullptr
                                    ? sequence.draft_masks()->mask(drafted)
                                    : sequence.mask();
  SamplingJob job{
      .row = row,
      .params = &work.sampling,
      .history = &sequence.history(),
      .key = {.output_index = work.output_index, .position = static_cast<uint64_t>(position)},
      .score = work.score,
      .draft = sequence.draft().first(drafted),
      .banned = sequence.BannedTokens(position),
      .mask = mask};
  sequence.set_job(static_cast<int64_t>(batch->jobs.size()));
  batch->jobs.push_back(job);
  if (position > sequence.prompt_tokens()) return;
  for (const auto& stream : sequence.request().branch_streams) {
    ++job.key.output_index;
    if (stream != nullptr) batch->jobs.push_back(job);
  }
}

// `first_token`: the batch index of the chunk's first token.
void AppendLogitsRows(const Chunk& chunk, int64_t first_token, Batch* batch) {
  Sequence& sequence = *chunk.sequence;
  const int64_t last_known = static_cast<int64_t>(sequence.tokens().size()) - 1;
  for (int64_t i = 0; i < chunk.num_rows; ++i) {
    const int64_t position = sequence.UnplannedPosition(i);
    const int32_t row = static_cast<int32_t>(batch->rows());
    batch->logits_rows.push_back(
        static_cast<int32_t>(first_token + position - chunk.first_position));
    if (sequence.generates() && position >= last_known) {
      AppendJobs(sequence, position + 1, row, batch);
    } else {
      batch->host_rows.push_back(row);
    }
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
