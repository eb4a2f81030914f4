#include "model/ops/cuda/batch_shape.h"

#include <algorithm>

namespace tlm {
namespace {

int64_t RoundUp(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

}  // namespace

int64_t PaddedRowCount(int64_t rows) {
  if (rows <= 0 || rows > kMaxPaddedRows) return rows;
  if (rows <= 16) {
    int64_t padded = 1;
    while (padded < rows) padded *= 2;
    return padded;
  }
  if (rows <= 64) return RoundUp(rows, 8);
  if (rows <= 128) return RoundUp(rows, 16);
  return RoundUp(rows, rows <= 256 ? 32 : 64);
}

BatchShape ShapeOf(const Batch& batch, const BatchLimits& limits) {
  const int64_t tokens = batch.tokens();
  const int64_t jobs = static_cast<int64_t>(batch.jobs.size());
  const int64_t padded_tokens = PaddedRowCount(tokens);
  const int64_t most_jobs = std::min(padded_tokens, limits.max_jobs());
  // A token of a draft is to a kernel what one of a sequence of its own is. Logits are padded with
  // the tokens: those of a prompt, of which few are asked for, stay out.
  const bool recurs = tokens == batch.sequences || 2 * batch.rows() >= tokens;
  if (!recurs || tokens > kMaxPaddedRows || batch.rows() > tokens || jobs > most_jobs) {
    return {.padded = {.tokens = tokens, .rows = batch.rows()}, .jobs = jobs, .key = 0};
  }
  BatchShape shape;
  shape.padded = {.tokens = padded_tokens,
                  .rows = batch.rows() == 0
                              ? 0
                              : std::min(padded_tokens, PaddedRowCount(limits.max_logits_rows))};
  shape.jobs = jobs == 0 ? 0 : most_jobs;
  // The block tables are not part of the shape: kernels find their rows in the batch's own arrays.
  shape.key = uint64_t{1} | uint64_t{shape.padded.rows > 0} << 1 | uint64_t{shape.jobs > 0} << 2 |
              static_cast<uint64_t>(shape.padded.tokens) << 3;
  return shape;
}

}  // namespace tlm
