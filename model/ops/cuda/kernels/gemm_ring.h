// The way of weights and activations to the tensor cores: a ring of stages in shared memory, each
// [rows][stage_k] weights, then [tokens][stage_k] of x. It runs on over the block's tiles. Pieces
// of 16 bytes are swizzled: piece c of row r stands at c ^ (r % 8) (rows of 64 bytes: c ^ (r / 2 %
// 4)), so that the 8 rows LoadMatrices reads lie in different banks. Included by gemm_mma.h.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_GEMM_RING_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_GEMM_RING_H_

#include <cstdint>

#include "model/ops/cuda/kernels/gemm_args.h"
#include "model/ops/cuda/kernels/gemm_finish.h"
#include "model/ops/cuda/kernels/gemm_tiles.h"
#include "model/ops/cuda/kernels/row_access.h"
#include "model/ops/cuda/kernels/simt.h"

namespace tlm::simt {

inline constexpr int kMmaRows = 16;
inline constexpr int kMmaTokens = 8;
inline constexpr int kPieceBytes = 16;
inline constexpr int kPieceElements = 8;

// What follows from a tile's shape.
template <int kTile>
struct MmaShape {
  static constexpr MmaTile kTileShape = kMmaTiles[kTile];
  static constexpr int kRows = kTileShape.rows;
  static constexpr int kTokens = kTileShape.tokens;
  static constexpr int kStageK = kTileShape.stage_k;
  static constexpr int kStages = kTileShape.stages;
  static constexpr int kWarpsAlongRows = kTileShape.warps_along_rows;
  static constexpr int kActiveWarps = kTileShape.active_warps();
  // A warp's share, in mma tiles.
  static constexpr int kRowTiles = kRows / kMmaRows / kTileShape.warps_along_rows;
  static constexpr int kTokenTiles = kTokens / kMmaTokens / kTileShape.warps_along_tokens();
  // The last kCopiers threads copy: those that have nothing to multiply, if they are half of all.
  static constexpr int kCopiers =
      kActiveWarps * kWarpLanes > kGemmThreads / 2 ? kGemmThreads : kGemmThreads / 2;
  // Pieces of a row, and rows that all copiers copy at once, a piece each.
  static constexpr int kPieces = kStageK / kPieceElements;
  static constexpr int kPassRows = kCopiers / kPieces;
  static constexpr int kPassBytes = kPassRows * kPieces * kPieceBytes;
  static constexpr int kWeightPasses = kRows / kPassRows;
  static constexpr int kTokenPasses = kTokens / kPassRows;
  static constexpr int kPasses = kWeightPasses + kTokenPasses;
  static constexpr int kWeightBytes = kRows * kStageK * 2;
  static constexpr int kStageBytes = kTileShape.stage_bytes();
  // Fragments are loaded for 32 of k at a time.
  static constexpr int kSteps = kStageK / 32;
  // Where a step is few products, the next one's fragments are loaded before it; where it is many,
  // these hide the loads of another warp, and the registers are wanted for sums.
  static constexpr int kFragments = kRowTiles * kTokenTiles <= 4 ? 2 : 1;

  static_assert(kRows % kPassRows == 0 && kTokens % kPassRows == 0 && kStageK % 32 == 0);
  static_assert(kWeightPasses * kPassRows % 8 == 0);  // tokens are swizzled as if rows went on
  static_assert(kRowTiles * kTileShape.warps_along_rows * kMmaRows == kRows);
  static_assert(kTokenTiles * kTileShape.warps_along_tokens() * kMmaTokens == kTokens);

  // What piece numbers of row `row` are XORed with.
  static constexpr TLM_HOST_DEVICE int Swizzle(int row) {
    return kPieces >= 8 ? row % 8 : row / 2 % 4;
  }
  // What that changes in byte addresses from pass 0 to pass `pass`.
  static constexpr TLM_HOST_DEVICE int PassSwizzle(int pass) {
    return (Swizzle(pass * kPassRows) ^ Swizzle(0)) * kPieceBytes;
  }
  // Byte of a stage's weights or tokens where piece `piece` of row `row` is.
  static constexpr TLM_HOST_DEVICE int PieceAt(int row, int piece) {
    return (row * kPieces + (piece ^ Swizzle(row))) * kPieceBytes;
  }
};

// Walks the stages of a block's tiles in order: tile, and place along k within it.
template <int kTile>
struct StageCursor {
  int tile;
  int k;

  TLM_DEVICE StageCursor() : tile(static_cast<int>(blockIdx.x)), k(0) {}
  TLM_DEVICE bool Done(const GemmArgs& args) const {
    return tile >= args.row_tiles * args.token_tiles;
  }
  // To the next stage; true if that is of another tile.
  TLM_DEVICE bool Advance(const GemmArgs& args) {
    k += MmaShape<kTile>::kStageK;
    if (k < static_cast<int>(args.k)) return false;
    k = 0;
    tile += static_cast<int>(gridDim.x);
    return true;
  }
};

// One copier's part: in every pass one piece, of row `row` + pass * kPassRows.
template <int kTile>
struct StageCopier {
  using Shape = MmaShape<kTile>;

  const GemmArgs& args;
  StageCursor<kTile> cursor;
  int slot = 0;
  int row;  // negative: this thread is no copier
  int piece;
  int target;  // byte of a stage that pass 0 of the weights goes to
  int k_end;   // this thread's pieces of the stages from here on lie behind k
  // Of the cursor's tile: where the pieces of k = 0 are, and which rows exist.
  const char* weights[Shape::kWeightPasses];
  const char* tokens[Shape::kTokenPasses];
  uint32_t existing = 0;  // bits: passes, weights first

  TLM_DEVICE explicit StageCopier(const GemmArgs& a) : args(a) {
    const int index = static_cast<int>(threadIdx.x) - (kGemmThreads - Shape::kCopiers);
    row = index < 0 ? -1 : index / Shape::kPieces;
    piece = index < 0 ? 0 : index % Shape::kPieces;
    target = Shape::PieceAt(index < 0 ? 0 : row, piece);
    k_end = static_cast<int>(args.k) - piece * kPieceElements;
    if (row >= 0) FindRows();
  }

  // Whether there is something left to copy for this thread; the same in a whole warp.
  TLM_DEVICE bool Copies() const { return row >= 0 && !cursor.Done(args); }

  // Stored row of the matrix in place `place` of row tile `row_tile`; -1: none.
  TLM_DEVICE int64_t WeightRow(int row_tile, int place) const {
    const int64_t stored = int64_t{row_tile} * Shape::kRows + place;
    if (args.gated) {
      constexpr int kPlaces = 2 * kGateGroup;
      return GatedRow(args.n, stored / kPlaces, static_cast<int>(stored % kPlaces));
    }
    return stored < args.n ? stored : -1;
  }

  TLM_DEVICE void FindRows() {
    existing = 0;
    if (cursor.Done(args)) return;
    const int row_tile = cursor.tile / args.token_tiles;
    const int token_tile = cursor.tile % args.token_tiles;
#pragma unroll
    for (int pass = 0; pass < Shape::kWeightPasses; ++pass) {
      const int64_t stored = WeightRow(row_tile, row + pass * Shape::kPassRows);
      if (stored >= 0) existing |= 1u << pass;
      weights[pass] = static_cast<const char*>(args.w) +
                      (stored < 0 ? 0 : stored) * args.w_stride * 2 + piece * kPieceBytes;
    }
#pragma unroll
    for (int pass = 0; pass < Shape::kTokenPasses; ++pass) {
      const int64_t token = int64_t{token_tile} * Shape::kTokens + row + pass * Shape::kPassRows;
      if (token < args.m) existing |= 1u << (Shape::kWeightPasses + pass);
      tokens[pass] = static_cast<const char*>(args.x) +
                     (token < args.m ? token : 0) * args.x_stride * 2 + piece * kPieceBytes;
    }
  }

  // Begins copying this thread's piece of pass `pass`; zeros where there is nothing.
  TLM_DEVICE void Copy(int pass) const {
    const char* const from =
        pass < Shape::kWeightPasses ? weights[pass] : tokens[pass - Shape::kWeightPasses];
    CopyAsync16(SharedMemory<unsigned char>() + slot * Shape::kStageBytes +
                    (target ^ Shape::PassSwizzle(pass)) + pass * Shape::kPassBytes,
                from + cursor.k * 2, (existing >> pass & 1) != 0 && cursor.k < k_end);
  }
  // Share `share` of `shares` of a stage's passes.
  TLM_DEVICE void CopyShare(int share, int shares) const {
#pragma unroll
    for (int pass = Shape::kPasses * share / shares; pass < Shape::kPasses * (share + 1) / shares;
         ++pass) {
      Copy(pass);
    }
  }
  // To the next stage. Rows change with the tile alone.
  TLM_DEVICE void Advance() {
    slot = slot + 1 == Shape::kStages ? 0 : slot + 1;
    if (cursor.Advance(args)) FindRows();
  }
};

// The weights of the first kStages - 1 stages, a group of copies each: before earlier kernels have
// ended, since no kernel writes them.
template <int kTile>
TLM_DEVICE void CopyFirstWeights(StageCopier<kTile>& copier) {
  using Shape = MmaShape<kTile>;
  for (int stage = 0; stage < Shape::kStages - 1; ++stage) {
    if (copier.Copies()) {
#pragma unroll
      for (int pass = 0; pass < Shape::kWeightPasses; ++pass) copier.Copy(pass);
      copier.Advance();
    }
    CopyAsyncCommit();
  }
}

// The rows of x of stages [kFirst, kFirst + kCount), walking `cursor` along.
template <int kTile, int kFirst, int kCount>
TLM_DEVICE void CopyTokens(const GemmArgs& args, StageCursor<kTile>& cursor) {
  using Shape = MmaShape<kTile>;
  constexpr int kPassRows = kGemmThreads / Shape::kPieces;
  constexpr int kPasses = Shape::kTokens / kPassRows;
  const int row = static_cast<int>(threadIdx.x) / Shape::kPieces;
  const int piece = static_cast<int>(threadIdx.x) % Shape::kPieces;
  Quad pieces[kCount][kPasses];
#pragma unroll
  for (int stage = 0; stage < kCount; ++stage) {
    const int first = cursor.tile % args.token_tiles * Shape::kTokens + row;
    const int at = cursor.k + piece * kPieceElements;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int64_t token = first + pass * kPassRows;
      const bool exists = !cursor.Done(args) && token < args.m && at < args.k;
      pieces[stage][pass] =
          exists ? LoadQuad(static_cast<const char*>(args.x) + (token * args.x_stride + at) * 2)
                 : Quad{};
    }
    cursor.Advance(args);
  }
#pragma unroll
  for (int stage = 0; stage < kCount; ++stage) {
    unsigned char* const to =
        SharedMemory<unsigned char>() + (kFirst + stage) * Shape::kStageBytes + Shape::kWeightBytes;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      StoreQuad(to + Shape::PieceAt(row + pass * kPassRows, piece), pieces[stage][pass]);
    }
  }
}

// The rows of x of the first kStages - 1 stages: through registers, so that a stage's own group of
// copies is all that has to arrive before it is multiplied. All threads; in two halves, for the
// registers' sake.
template <int kTile>
TLM_DEVICE void CopyFirstTokens(const GemmArgs& args) {
  constexpr int kAhead = MmaShape<kTile>::kStages - 1;
  StageCursor<kTile> cursor;
  CopyTokens<kTile, 0, kAhead / 2>(args, cursor);
  CopyTokens<kTile, kAhead / 2, kAhead - kAhead / 2>(args, cursor);
}

}  // namespace tlm::simt

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_GEMM_RING_H_
