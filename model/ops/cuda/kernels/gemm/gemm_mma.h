// GEMM on the tensor cores, for every tile shape. With few rows of x it is a small-M GEMM, bound by
// the weights' bytes. Included by kernels only.
//
// Map of the kernel (MultiplyTiles, at the end). A persistent thread block of 4 warps computes
// tiles one after the other. One mainloop runs over the pipeline stages of all its tiles, through a
// ring of stages in shared memory.
//
//   time       1. griddepcontrol.launch_dependents: the next kernel may start (programmatic
//                 dependent launch, PDL)
//              2. prologue: cp.async of the weights of the first kStages - 1 stages, one group per
//                 stage; for tiles of 8 tokens one thread also prefetches weights to L2
//              3. griddepcontrol.wait for the previous kernel; x exists from here on
//              4. x of these stages, loaded through registers
//              5. mainloop, per stage: wait for its cp.async group, barrier, ldmatrix and mma.
//                 Meanwhile cp.async of a later stage, of this tile or the next, into the slot
//                 that was multiplied before
//              6. epilogue, per tile: barrier; sums to the slot just multiplied; barrier; bias,
//                 activation or gate, and stores, by all threads. Copies for the next tile continue
//   shared     a ring of kStages slots, one per pipeline stage: [rows][stage_k] of weights, then
//              [tokens][stage_k] of x, swizzled (gemm_ring.h). In 6. one slot holds [tokens][rows]
//              floats. 64 to 96 KB per thread block
//   warps      the first active_warps() multiply, (rows / warps_along_rows) x tokens each. The last
//              kCopiers threads copy. If half of the block multiplies, the other warps are
//              producer warps that only copy; else the same warps copy between their products
//   registers  sums, 4 per 16 x 8 tile; fragments for 32 of k, double-buffered if they are few; a
//              copier's pointers. Limits: tests/gpu/static/ptxas_budgets.txt. Below 168 registers
//              three thread blocks share an SM, tiled two
//   barriers   one per stage, two per tile's epilogue; tiled two in each of its four rounds
//
// The weights are the mma's 16 x 16 operand (A), tokens its 8 columns (B): one token costs an
// eighth of a tile. Every accumulator belongs to one warp and takes k ascending by 16, in every
// tile shape.
//
// Bytes: n k of weights once per token tile, m k of x once per row tile (from L2), m n of outputs;
// times the element's size.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_GEMM_GEMM_MMA_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_GEMM_GEMM_MMA_H_

#include <cstdint>

#include "model/ops/cuda/kernels/gemm/gemm_epilogue.h"
#include "model/ops/cuda/kernels/gemm/gemm_kernels.h"
#include "model/ops/cuda/kernels/gemm/gemm_ring.h"
#include "model/ops/cuda/kernels/simt.h"

namespace tlm::simt {

// The staging area of the epilogue: a tile's sums as [tokens][rows] floats, in the slot that was
// multiplied last. If the tile is too large, each round stages a part of every warp's rows.
template <int kTile>
struct Staging {
  using Shape = MmaShape<kTile>;
  static constexpr int kFloats = Shape::kStageBytes / 4;
  // Per warp and round.
  static constexpr int kRowTiles = Shape::kRows * Shape::kTokens <= kFloats ? Shape::kRowTiles : 1;
  static constexpr int kWarpRows = kRowTiles * kMmaRows;
  static constexpr int kRounds = Shape::kRowTiles / kRowTiles;
  static constexpr int kRows = Shape::kRows / kRounds;
  static constexpr int kTokens = Shape::kTokens;
  static constexpr int kGates = 8;  // per mma tile
  static_assert(kRows * Shape::kTokens <= kFloats);

  // Index of a float. Rows are swizzled by 8, so that a warp's sums (8 rows of 4 tokens at once) go
  // to different banks.
  static constexpr TLM_HOST_DEVICE int At(int token, int row) {
    return token * kRows + (row ^ (token / 2 * 8 & (kRows - 1) & 24));
  }
  // The tile's row that is row `row` of round `round`.
  static constexpr TLM_HOST_DEVICE int TileRow(int round, int row) {
    return (row / kWarpRows * Shape::kRowTiles + round * kRowTiles) * kMmaRows + row % kWarpRows;
  }
};

// One warp's part of a tile.
template <typename T, int kTile>
struct WarpProduct {
  using Shape = MmaShape<kTile>;
  // Operands for 32 of k.
  struct Fragments {
    uint32_t weights[Shape::kRowTiles][2][4];  // [..][16 of k]
    uint32_t tokens[Shape::kTokenTiles][4];
  };

  float sums[Shape::kRowTiles][Shape::kTokenTiles][4];
  int first_row_tile;  // within the block's tile
  int first_token_tile;
  bool active;
  // This lane's addresses for LoadMatrices: byte offsets of its rows from the stage's start.
  int weight_rows[Shape::kRowTiles];
  int token_rows;
  int weight_piece;  // 0 or 1: which half of 16 of k
  int token_piece;   // 0 .. 3: which quarter of 32 of k
  int swizzle;

  TLM_DEVICE explicit WarpProduct(bool gated) {
    const int warp = static_cast<int>(threadIdx.x) / kWarpLanes;
    const int lane = static_cast<int>(threadIdx.x) % kWarpLanes;
    active = warp < Shape::kActiveWarps;
    first_row_tile = warp % Shape::kWarpsAlongRows * Shape::kRowTiles;
    first_token_tile = warp / Shape::kWarpsAlongRows * Shape::kTokenTiles;
    const int row = lane % 8;  // row of a matrix; matrices 1 and 3 are the lower half of the 16
    const int lower = lane / 8 % 2;
    weight_piece = lane / 16;
    token_piece = lane / 8;
    swizzle = Shape::Swizzle(row);
#pragma unroll
    for (int i = 0; i < Shape::kRowTiles; ++i) {
      const int tile = first_row_tile + i;
      // A gated mma tile has 8 gates above and their 8 ups below, so that one lane gets both sums
      // of an output.
      const int stored = gated ? tile / 2 * 32 + tile % 2 * 8 + row + lower * kGateGroup
                               : tile * kMmaRows + row + lower * 8;
      weight_rows[i] = stored * Shape::kPieces * kPieceBytes;
    }
    token_rows =
        Shape::kWeightBytes + (first_token_tile * kMmaTokens + row) * Shape::kPieces * kPieceBytes;
  }

  TLM_DEVICE void Clear() {
#pragma unroll
    for (int i = 0; i < Shape::kRowTiles; ++i) {
#pragma unroll
      for (int j = 0; j < Shape::kTokenTiles; ++j) {
#pragma unroll
        for (int c = 0; c < 4; ++c) sums[i][j][c] = 0.0f;
      }
    }
  }

  TLM_DEVICE void Load(const unsigned char* stage, int step, Fragments& f) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int piece = ((step * 4 + half * 2 + weight_piece) ^ swizzle) * kPieceBytes;
#pragma unroll
      for (int i = 0; i < Shape::kRowTiles; ++i) {
        LoadMatrices(f.weights[i][half], stage + weight_rows[i] + piece);
      }
    }
    const int piece = ((step * 4 + token_piece) ^ swizzle) * kPieceBytes;
#pragma unroll
    for (int j = 0; j < Shape::kTokenTiles; ++j) {
      constexpr int kTileBytes = kMmaTokens * Shape::kPieces * kPieceBytes;
      LoadMatrices(f.tokens[j], stage + token_rows + j * kTileBytes + piece);
    }
  }

  TLM_DEVICE void Multiply(const Fragments& f) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < Shape::kRowTiles; ++i) {
#pragma unroll
        for (int j = 0; j < Shape::kTokenTiles; ++j) {
          const uint32_t tokens[2] = {f.tokens[j][half * 2], f.tokens[j][half * 2 + 1]};
          MultiplyAdd<T>(sums[i][j], f.weights[i][half], tokens);
        }
      }
    }
  }

  // Writes the sums of round `round` to the staging area.
  TLM_DEVICE void Stage(float* staging, int round) const {
    using Area = Staging<kTile>;
    const int lane = static_cast<int>(threadIdx.x) % kWarpLanes;
    const int first_row = first_row_tile / Shape::kRowTiles * Area::kWarpRows + lane / 4;
    const int first_token = first_token_tile * kMmaTokens + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < Shape::kRowTiles; ++i) {
      if (i / Area::kRowTiles != round) continue;
      const int row = first_row + i % Area::kRowTiles * kMmaRows;
#pragma unroll
      for (int j = 0; j < Shape::kTokenTiles; ++j) {
        const int token = first_token + j * kMmaTokens;
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          staging[Area::At(token + c % 2, row + c / 2 * 8)] = sums[i][j][c];
        }
      }
    }
  }
};

// Multiplies a stage and begins the copies of a later one. Warps that do both begin copies between
// the steps, where they would otherwise wait for their sums.
template <typename T, int kTile>
TLM_DEVICE void MultiplyStage(WarpProduct<T, kTile>& product, int slot,
                              const StageCopier<kTile>& copier, bool copies) {
  using Shape = MmaShape<kTile>;
  constexpr int kFragments = Shape::kFragments;
  if constexpr (Shape::kCopiers < kGemmThreads) {
    if (copies) copier.CopyShare(0, 1);
  }
  if (!product.active) return;
  const unsigned char* const stage = SharedMemory<unsigned char>() + slot * Shape::kStageBytes;
  typename WarpProduct<T, kTile>::Fragments fragments[kFragments];
  if (kFragments == 2) product.Load(stage, 0, fragments[0]);
#pragma unroll
  for (int step = 0; step < Shape::kSteps; ++step) {
    const int load = step + kFragments - 1;
    if (load < Shape::kSteps) product.Load(stage, load, fragments[load % kFragments]);
    product.Multiply(fragments[step % kFragments]);
    if constexpr (Shape::kCopiers == kGemmThreads) {
      if (copies) copier.CopyShare(step, Shape::kSteps);
    }
  }
}

// The kernels' body. Thread blocks are persistent: block b computes tiles b, b + gridDim.x, ...
template <typename T, int kTile>
TLM_DEVICE void MultiplyTiles(const GemmArgs& args) {
  using Shape = MmaShape<kTile>;
  static_assert(Shape::kCopiers < kGemmThreads || Shape::kActiveWarps * kWarpLanes == kGemmThreads);
  LetNextStart();
  StageCopier<kTile> copier(args);
  CopyFirstWeights(copier);
  if constexpr (Shape::kTokens <= kPrefetchTokens) PrefetchWeights<kTile>(args);
  WaitForPrevious();
  CopyFirstTokens<kTile>(args);
  WarpProduct<T, kTile> product(args.gated);
  const int tiles = args.row_tiles * args.token_tiles;
  const int k_end = static_cast<int>(args.k);
  int slot = 0;
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += static_cast<int>(gridDim.x)) {
    product.Clear();
    for (int k = 0; k < k_end; k += Shape::kStageK) {
      CopyAsyncWait<Shape::kStages - 2>();
      SyncThreads();
      const bool copies = copier.BeginStage();
      MultiplyStage(product, slot, copier, copies);
      CopyAsyncCommit();
      if (copies) copier.EndStage();
      slot = slot + 1 == Shape::kStages ? 0 : slot + 1;
    }
    const TilePlace place = PlaceOf(args, tile);
    const int used = (slot == 0 ? Shape::kStages : slot) - 1;
    float* const staging = SharedMemory<float>() + used * Staging<kTile>::kFloats;
#pragma unroll 1
    for (int round = 0; round < Staging<kTile>::kRounds; ++round) {
      SyncThreads();  // all reads of this slot are done
      if (product.active) product.Stage(staging, round);
      SyncThreads();
      StoreStaged<T, Staging<kTile>, kGemmThreads>(
          args, {.sums = staging,
                 .first_row = place.row_tile * Shape::kRows,
                 .first_token = place.token_tile * Shape::kTokens,
                 .round = round});
    }
  }
}

}  // namespace tlm::simt

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_GEMM_GEMM_MMA_H_
