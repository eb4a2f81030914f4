// Padding buckets: decide which batches are padded to a common shape, so that one CUDA graph serves
// them. Plain C++, no CUDA.
#ifndef TLM_MODEL_OPS_CUDA_BATCH_BATCH_SHAPE_H_
#define TLM_MODEL_OPS_CUDA_BATCH_BATCH_SHAPE_H_

#include <cstdint>
#include <vector>

#include "model/ops/batch.h"
#include "model/ops/cuda/batch/batch_ring_layout.h"

namespace tlm {

// Larger batches are not padded: their launches take little time compared with the kernels.
inline constexpr int64_t kMaxPaddedRows = 512;

// The padding bucket of `rows`: the least number that is at least `rows` among 1, 2, 4, 8, 16,
// multiples of 8 up to 64, of 16 up to 128, of 32 up to 256 and of 64 up to kMaxPaddedRows. 0 and
// larger numbers are returned unchanged. Monotonic.
int64_t PaddedRowCount(int64_t rows);

// The shape that a batch's kernels are launched with.
struct BatchShape {
  PaddedShape padded;
  int64_t jobs = 0;  // jobs that sampling is launched for: 0, or at least the batch's
  uint64_t key = 0;  // key of the graph: odd, different for any two shapes; 0: no graph
};

// Pads batches with one token per sequence (decoding), and batches that compute the logits of at
// least half of their tokens (drafts). Leaves all others unpadded, with key 0.
BatchShape ShapeOf(const Batch& batch, const BatchLimits& limits);

// The shapes of batches that sample a token after each of their tokens, fewest tokens first.
std::vector<BatchShape> CommonShapes(const BatchLimits& limits);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_BATCH_BATCH_SHAPE_H_
