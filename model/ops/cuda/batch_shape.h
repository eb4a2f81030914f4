// Which batches are padded to a common shape, so that one recorded graph serves them: pure
// arithmetic.
#ifndef TLM_MODEL_OPS_CUDA_BATCH_SHAPE_H_
#define TLM_MODEL_OPS_CUDA_BATCH_SHAPE_H_

#include <cstdint>
#include <vector>

#include "model/ops/batch.h"
#include "model/ops/cuda/batch_ring_layout.h"

namespace tlm {

// Larger batches are not padded: what starting their kernels takes is little beside running them.
inline constexpr int64_t kMaxPaddedRows = 512;

// The least of 1, 2, 4, 8, 16, then multiples of 8 up to 64, 16 up to 128, 32 up to 256 and 64 up
// to kMaxPaddedRows that is at least `rows`; more rows, and none, stay as they are. Never falls
// with rising `rows`.
int64_t PaddedRowCount(int64_t rows);

// A batch as the kernels are started for it.
struct BatchShape {
  PaddedShape padded;
  int64_t jobs = 0;  // that sampling is started for: 0 or at least the batch's
  uint64_t key = 0;  // odd, and different for any two shapes; 0: of this batch alone
};

// Batches of one token a sequence, as while decoding, and those that compute the logits of at least
// half of their tokens, as with drafts, are padded; any others are taken as they are.
BatchShape ShapeOf(const Batch& batch, const BatchLimits& limits);

// The shapes of batches that sample a token behind every one of theirs, fewest tokens first.
std::vector<BatchShape> CommonShapes(const BatchLimits& limits);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_BATCH_SHAPE_H_
