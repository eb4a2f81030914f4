// Which kernel computes a matrix product, and in what shape it is started: pure arithmetic.
#ifndef TLM_MODEL_OPS_CUDA_GEMM_PLAN_H_
#define TLM_MODEL_OPS_CUDA_GEMM_PLAN_H_

#include <cstddef>
#include <cstdint>

#include "model/tensor/dtype.h"

namespace tlm {

constexpr int64_t CeilDiv(int64_t value, int64_t by) { return (value + by - 1) / by; }

// The largest m, n and k that may be asked for; with them every count of tiles is an int.
inline constexpr int64_t kMaxGemmExtent = int64_t{1} << 20;

// What products are planned for.
struct GemmDevice {
  int multiprocessors = 1;
  size_t shared_bytes_per_multiprocessor = 0;
  size_t shared_bytes_per_block = 0;  // of kernels that take it only where there is as much
};

enum class GemmMethod {
  kSkinny,  // tensor cores, tiles of few rows: bound by the weights' bytes
  kTiled,   // tensor cores, the largest tile
  kSimt,    // one product at a time
};

struct GemmShape {
  int64_t m = 0;  // rows of x; > 0
  int64_t n = 0;  // rows of the weight matrix; > 0
  int64_t k = 0;
  int64_t of_n = 0;            // of the matrix that these are rows of; 0: n
  DType dtype = DType::kBF16;  // of the weights
  bool gated = false;          // gate and up rows in groups: tiles hold whole ones
};

struct GemmPlan {
  GemmMethod method = GemmMethod::kSimt;
  int tile = 0;  // index into kMmaTiles or kSimtTiles
  int row_tiles = 0;
  int token_tiles = 0;
  int grid = 0;  // blocks; block b takes tiles b, b + grid, ... of row_tiles * token_tiles
  int threads = 0;
  int prefetch_bytes = 0;  // GemmArgs
  size_t shared_bytes = 0;
};

// Whether products with such weights run on the tensor cores, at every m: 16 bits an element, n and
// k multiples of 8.
bool UsesTensorCores(int64_t n, int64_t k, DType dtype);

// Own kernels for a product. The method depends on m, and on n for a given of_n, only between
// kSkinny and kTiled, whose bits agree.
//
// Up to kSkinnyTokens rows (small-M GEMMs) one tile has all of them, and each weight is read once.
// Above, the tiles for 32 tokens and more compete by the bytes that the busiest multiprocessor
// reads through the L2 cache: as many tiles as it gets (waves), times (rows + tokens) of a tile for
// every element of k. Among equals the smaller tile wins up to 256 rows: more blocks are at work,
// which alone cannot draw all that the cache gives; of two as large the one with more tokens, since
// fewer blocks read a weight. Above, the larger one: all blocks together read less.
//
// Estimated, of an 8B model's o (n = k = 4096) and down (4096 x 12288) at m = 128 on 132
// multiprocessors: the largest tile makes 32 blocks, each of which multiplies alone on its
// multiprocessor for some 16.7 cycles an element of k: 39 us and 118 us at 1.755 GHz. Tiles of
// 64 x 64 make 128 blocks that read 32 KiB an element of k together, 9.6 cycles at 6 TB/s from the
// L2 cache: 22 us and 67 us. The weights' bytes alone take 8 us and 23 us at 4.3 TB/s.
//
// At m = 64 this gives qkv (6144 x 4096) tiles of 64 x 64: 101 MB through the L2 cache in place of
// 151 MB with 32 x 64, estimated 23 us in place of 35 us where a multiprocessor draws no more than
// its equal share of 6 TB/s (45 GB/s), 17 us and 25 us where it draws more. o and down keep
// 32 x 64, 128 blocks: 64 of 64 x 64 read two thirds of the bytes, 67 MB and 201 MB, and are faster
// only where half the multiprocessors draw more than two thirds of what all draw (microbench's
// l2_read_half).
GemmPlan PlanGemm(const GemmShape& shape, const GemmDevice& device);

// A grid of blocks that take shared_bytes each, of which none has more than one tile more than
// another, and no multiprocessor more than its equal share of tiles, rounded up; as few blocks as
// that takes with the fewest waves, or as many as are at work at once.
int EvenGrid(int64_t tiles, size_t shared_bytes, const GemmDevice& device);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_GEMM_PLAN_H_
