// Chooses the kernel, tile and grid of a matrix product. Plain C++, no CUDA.
#ifndef TLM_MODEL_OPS_CUDA_GEMM_GEMM_PLAN_H_
#define TLM_MODEL_OPS_CUDA_GEMM_GEMM_PLAN_H_

#include <cstddef>
#include <cstdint>

#include "model/tensor/dtype.h"

namespace tlm {

// The largest m, n and k that are supported; up to them every tile count fits an int.
inline constexpr int64_t kMaxGemmExtent = int64_t{1} << 20;

// The device that products are planned for.
struct GemmDevice {
  int multiprocessors = 1;
  size_t shared_bytes_per_multiprocessor = 0;
  size_t shared_bytes_per_block = 0;  // limit of a thread block
};

enum class GemmMethod {
  kSkinny,  // tensor cores, small M: bound by the weights' bytes
  kTiled,   // tensor cores, the largest tile
  kSimt,    // no tensor cores
};

struct GemmShape {
  int64_t m = 0;  // rows of x; > 0
  int64_t n = 0;  // rows of the weight matrix; > 0
  int64_t k = 0;
  int64_t of_n = 0;            // n of the complete matrix, if these are a part of its rows; 0: n
  DType dtype = DType::kBF16;  // dtype of the weights
  bool gated = false;          // gate and up rows in groups; a tile holds whole groups
};

struct GemmPlan {
  GemmMethod method = GemmMethod::kSimt;
  int tile = 0;  // index into kMmaTiles or kSimtTiles
  int row_tiles = 0;
  int token_tiles = 0;
  int grid = 0;  // thread blocks; block b takes tiles b, b + grid, ... of row_tiles * token_tiles
  int threads = 0;
  int prefetch_bytes = 0;  // see GemmArgs
  size_t shared_bytes = 0;
};

// Whether products with such weights run on the tensor cores, at every m: if elements have 16 bits
// and n and k are multiples of 8.
bool UsesTensorCores(int64_t n, int64_t k, DType dtype);

// The plan for the own kernels. The method depends on m, and on n for a given of_n, only between
// kSkinny and kTiled, which have the same bits.
//
// Up to kSkinnyTokens rows (small-M GEMM) one token tile has all of them, and each weight is read
// once. Above, the tiles for 32 tokens and more are compared by the bytes that the busiest SM reads
// through L2: the number of tiles it gets (waves) times (rows + tokens) of a tile, for every
// element of k. Among equals the smaller tile wins up to 256 rows: it makes more thread blocks, and
// few blocks alone cannot use all of the L2 bandwidth. Of two tiles of equal size the one with more
// tokens wins, because fewer blocks read a weight. Above 256 rows the larger tile wins: all blocks
// together read less.
//
// Estimated, for o (n = k = 4096) and down (4096 x 12288) of an 8B model at m = 128 on 132 SMs: the
// largest tile makes 32 blocks, each alone on its SM, which take some 16.7 cycles per element of k:
// 39 us and 118 us at 1.755 GHz. Tiles of 64 x 64 make 128 blocks that together read 32 KiB per
// element of k, 9.6 cycles at 6 TB/s from L2: 22 us and 67 us. The weights' bytes alone take 8 us
// and 23 us at 4.3 TB/s.
//
// At m = 64 this rule gives qkv (6144 x 4096) tiles of 64 x 64: 101 MB through L2 instead of 151 MB
// with 32 x 64. Estimated 23 us instead of 35 us if an SM gets no more than its equal share of 6
// TB/s (45 GB/s), 17 us and 25 us if it gets more. o and down keep 32 x 64, which is 128 blocks: 64
// blocks of 64 x 64 read two thirds of the bytes, 67 MB and 201 MB, but are faster only if half of
// the SMs get more than two thirds of what all SMs get (l2_read_half of tests/gpu/microbench.cu).
GemmPlan PlanGemm(const GemmShape& shape, const GemmDevice& device);

// A grid of thread blocks with shared_bytes each. No block has more than one tile more than
// another, and no SM more than its equal share of tiles, rounded up. The grid is as small as that
// allows with the fewest waves, or as many blocks as are resident at once.
int EvenGrid(int64_t tiles, size_t shared_bytes, const GemmDevice& device);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_GEMM_GEMM_PLAN_H_
