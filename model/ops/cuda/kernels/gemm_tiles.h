// What a block of the matrix kernels computes at a time. Plain constants, which planner and kernels
// share.
//
// Estimated (November 2026; H200: 132 SMs, 4.3 TB/s, 700 ns to 1 us from a request to its bytes, a
// dependent mma every 33 cycles; nothing here is measured). 4.3 TB/s need 3.0 to 4.3 MB under way,
// 23 to 33 KB an SM. A skinny block keeps stages - 1 tiles of weights under way, 28 to 48 KB, and
// two blocks an SM run where there is work for them. Of 228 KB an SM they leave room for a block of
// the next kernel (above 32 tokens, where one runs), which fetches its first weights meanwhile. One
// accumulator chain bounds a block from below: 33 cycles a 16 of k and 80 a stage, 344 cycles a
// stage of 128 k; a stage of 32 rows is 8 KB, the SM's share of which takes 440 cycles.
//
//   Qwen3-8B, 1 token     n x k           tile  tiles  blocks  rounds  bytes    chain
//   qkv                   6144 x 4096     32    192    192     1       11.7 us   6.3 us
//   o                     4096 x 4096     32    128    128     1        7.8 us   6.3 us
//   gate_up              24576 x 4096     32    768    256     3       46.8 us  18.8 us
//   down                  4096 x 12288    32    128    128     1       23.4 us  18.8 us
//   head                151936 x 4096     32   4748    264     18     289.5 us   113 us
//
// Blocks are persistent and the ring of stages runs on from one tile to the next, so the only ramps
// are the launch's own; the planner evens the rounds (waves) out, so that no block has more than
// one tile more than another.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_GEMM_TILES_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_GEMM_TILES_H_

namespace tlm {

// 128 threads. Of a tile's 16 x 8 mma tiles, (16 weight rows) x (8 tokens), the four warps take
// shares warps_along_rows x (active warps / warps_along_rows); warps beyond these only copy.
struct MmaTile {
  int rows;              // of the weight matrix; a multiple of 16
  int tokens;            // a multiple of 8
  int warps_along_rows;  // divides rows / 16
  int stage_k;           // 32, 64 or 128: elements of k in a stage of the ring
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
// Up to so many rows of x one tile has them all, and every weight is read once.
inline constexpr int kSkinnyTokens = 32;

// Tiles of so many tokens prefetch weights: where weights are nearly all there is to read.
inline constexpr int kPrefetchTokens = 8;
// Bytes of weights that all blocks bring to L2 while the kernels before it run. Estimated: what
// memory reads in 4 us (an H200's 4.3 TB/s), about attention's time at one token; a third of an
// H100's L2.
inline constexpr int64_t kPrefetchBytes = int64_t{16} << 20;

// A multiple of 16 that cp.async.bulk.prefetch.L2 takes: the machine's instruction counts pieces of
// 16 bytes in 16 bits, 1 MiB wraps around to none.
inline constexpr int kMostPrefetchBytes = (1 << 20) - 128;

// The kernel without tensor cores: 128 threads, row_threads of them along the rows of weights, each
// with its share of sums. A stage holds row_bytes of every row of weights and of x; rows are padded
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
    {32, 8, 16, 256, 6},  // 64 KB; 40 KB of weights under way
    {64, 64, 8, 128, 3},  // 54 KB
};
inline constexpr int kSimtTileCount = sizeof(kSimtTiles) / sizeof(kSimtTiles[0]);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_GEMM_TILES_H_
