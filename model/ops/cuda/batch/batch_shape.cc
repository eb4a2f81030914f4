#include "model/ops/cuda/batch/batch_shape.h"

#include <algorithm>

namespace tlm {
namespace {

int64_t RoundUp(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

// The shape of batches with up to `tokens` tokens, with logits and jobs or without.
BatchShape Padded(int64_t tokens, bool rows, bool jobs, const BatchLimits& limits) {
  BatchShape shape;
  shape.padded.tokens = PaddedRowCount(tokens);
  if (rows) {
    shape.padded.rows = std::min(shape.padded.tokens, PaddedRowCount(limits.max_logits_rows));
  }
  if (jobs) shape.jobs = std::min(shape.padded.tokens, limits.max_jobs());
  // The block tables are not part of the shape: kernels find a token's row in the batch's upload.
  shape.key = uint64_t{1} | uint64_t{rows} << 1 | uint64_t{jobs} << 2 |
              static_cast<uint64_t>(shape.padded.tokens) << 3;
  return shape;
}

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
  const int64_t rows = batch.rows();
  const auto jobs = static_cast<int64_t>(batch.jobs.size());
  const BatchShape shape = Padded(tokens, rows > 0, jobs > 0, limits);
  // For the kernels a draft's token is like a sequence of one token. Logits are padded like the
  // tokens, so prompts, which need few logits, are not padded.
  const bool recurs = tokens == batch.sequences || 2 * rows >= tokens;
  if (recurs && tokens <= kMaxPaddedRows && rows <= tokens && jobs <= shape.jobs) return shape;
  return {.padded = {.tokens = tokens, .rows = rows}, .jobs = jobs, .key = 0};
}

std::vector<BatchShape> CommonShapes(const BatchLimits& limits) {
  std::vector<BatchShape> shapes;
  const int64_t most = std::min({limits.max_jobs(), limits.max_tokens, kMaxPaddedRows});
  for (int64_t tokens = 1; tokens <= most; tokens = shapes.back().padded.tokens + 1) {
    shapes.push_back(Padded(tokens, true, true, limits));
  }
  return shapes;
}

}  // namespace tlm
