// The tile shapes of the GEMM kernels. Plain constants, shared by planner and kernels.
//
// Estimated (November 2026; H200: 132 SMs, 4.3 TB/s, 700 ns to 1 us of memory latency, a dependent
// mma every 33 cycles; nothing here is measured). 4.3 TB/s need 3.0 to 4.3 MB in flight, 23 to 33
// KB per SM. A skinny thread block has stages - 1 tiles of weights in flight, 28 to 48 KB, and two
// run on an SM if there is work for them. Of the 228 KB of an SM they leave room for a block of the
// next kernel (above 32 tokens: where one runs), which loads its first weights meanwhile. The chain
// of dependent mma of an accumulator bounds a block from below: 33 cycles per 16 of k and 80 per
// stage, 344 cycles for a stage of 128 k. A stage of 32 rows is 8 KB, for which an SM's share of
// the bandwidth takes 440 cycles.
//
//   Qwen3-8B, 1 token     n x k           tile  tiles  blocks  rounds  bytes    chain
//   qkv                   6144 x 4096     32    192    192     1       11.7 us   6.3 us
//   o                     4096 x 4096     32    128    128     1        7.8 us   6.3 us
//   gate_up              24576 x 4096     32    768    256     3       46.8 us  18.8 us
//   down                  4096 x 12288    32    128    128     1       23.4 us  18.8 us
//   head                151936 x 4096     32   4748    264     18     289.5 us   113 us
//
// Thread blocks are persistent and the ring of stages continues from one tile to the next, so the
// pipeline fills only once per launch. The planner evens out the rounds (waves): no block has more
// than one tile more than another.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_GEMM_GEMM_TILES_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_GEMM_GEMM_TILES_H_

namespace tlm {

// 128 threads. A tile consists of 16 x 8 mma tiles: (16 weight rows) x (8 tokens). The multiplying
// warps divide it, warps_along_rows x (active warps / warps_along_rows); the remaining warps only
// copy.
struct MmaTile {
  int rows;              // rows of the weight matrix; a multiple of 16
  int tokens;            // a multiple of 8
  int warps_along_rows;  // divides rows / 16
  int stage_k;           // 32, 64 or 128: elements of k per pipeline stage
  int stages;

  constexpr int stage_bytes() const { return (rows + tokens) * stage_k * 2; }
  constexpr int shared_bytes() const { return stages * stage_bytes(); }
  constexpr int warps_along_tokens() const {
    const int most = 4 / warps_along_rows;
    return tokens / 8 < most ? tokens / 8 : most;
  }
  constexpr int active_warps() const { return warps_along_rows * warps_along_tokens(); }
};

inline constexpr int kGemmThreads = 128;

// Sorted by tokens, then rows; the last is the tiled kernel's.
inline constexpr MmaTile kMmaTiles[] = {
    {16, 8, 1, 128, 12},  {32, 8, 2, 128, 7},   // 72, 70 KB
    {16, 16, 1, 128, 9},  {32, 16, 2, 128, 6},  // 72 KB
    {32, 32, 2, 64, 9},   {64, 32, 4, 64, 6},   // 72 KB
    {32, 64, 2, 64, 8},   {64, 64, 2, 64, 6},   // 96 KB
    {128, 128, 2, 32, 4},                       // 64 KB
};
inline constexpr int kMmaTileCount = sizeof(kMmaTiles) / sizeof(kMmaTiles[0]);
inline constexpr int kTiledMmaTile = kMmaTileCount - 1;
// Up to this many rows of x one token tile has them all, and every weight is read once.
inline constexpr int kSkinnyTokens = 32;

// Tiles of this many tokens prefetch weights to L2: with so few tokens nearly all bytes read are
// weights.
inline constexpr int kPrefetchTokens = 8;
// Bytes of weights that all thread blocks together prefetch to L2 while earlier kernels run.
// Estimated: what memory reads in 4 us (an H200's 4.3 TB/s), about attention's time at one token; a
// third of an H100's L2.
inline constexpr int64_t kPrefetchBytes = int64_t{16} << 20;

// The largest size used for cp.async.bulk.prefetch.L2, a multiple of 16. The machine instruction
// counts 16-byte pieces in 16 bits, so 1 MiB would wrap around to 0.
inline constexpr int kMaxPrefetchBytes = (1 << 20) - 128;

// Tiles of the SIMT kernel: 128 threads, row_threads of them along the rows of weights, each with
// its share of the sums. A stage holds row_bytes of every row of weights and of x. Rows are padded
// by 16 bytes, so that threads of different rows read different banks.
struct SimtTile {
  int rows;
  int tokens;
  int row_threads;
  int row_bytes;
  int stages;

  constexpr int stage_bytes() const { return (rows + tokens) * (row_bytes + 16); }
  constexpr int shared_bytes() const { return stages * stage_bytes(); }
};

// Sorted by tokens.
inline constexpr SimtTile kSimtTiles[] = {
    {32, 8, 16, 256, 6},  // 64 KB; 40 KB of weights in flight
    {64, 64, 8, 128, 3},  // 54 KB
};
inline constexpr int kSimtTileCount = sizeof(kSimtTiles) / sizeof(kSimtTiles[0]);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_GEMM_GEMM_TILES_H_
