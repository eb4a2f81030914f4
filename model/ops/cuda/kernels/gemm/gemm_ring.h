// Copies weights and activations to shared memory for the tensor cores: a ring of pipeline stages,
// each with [rows][stage_k] weights, then [tokens][stage_k] of x. The ring continues from one tile
// of the thread block to the next. Pieces of 16 bytes are swizzled: piece c of row r is at c ^ (r %
// 8), or c ^ (r / 2 % 4) if rows have 64 bytes, so that the 8 rows that LoadMatrices reads are in
// different banks. Included by gemm_mma.h.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_GEMM_GEMM_RING_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_GEMM_GEMM_RING_H_

#include <cstdint>

#include "model/ops/cuda/kernels/gemm/gemm_epilogue.h"
#include "model/ops/cuda/kernels/gemm/gemm_kernels.h"
#include "model/ops/cuda/kernels/gemm/gemm_tiles.h"
#include "model/ops/cuda/kernels/row_access.h"
#include "model/ops/cuda/kernels/simt.h"

namespace tlm::simt {

inline constexpr int kMmaRows = 16;
inline constexpr int kMmaTokens = 8;
inline constexpr int kPieceBytes = 16;
inline constexpr int kPieceElements = 8;

// Constants that follow from a tile's shape.
template <int kTile>
struct MmaShape {
  static constexpr MmaTile kTileShape = kMmaTiles[kTile];
  static constexpr int kRows = kTileShape.rows;
  static constexpr int kTokens = kTileShape.tokens;
  static constexpr int kStageK = kTileShape.stage_k;
  static constexpr int kStages = kTileShape.stages;
  static constexpr int kWarpsAlongRows = kTileShape.warps_along_rows;
  static constexpr int kActiveWarps = kTileShape.active_warps();
  // Per warp, in mma tiles.
  static constexpr int kRowTiles = kRows / kMmaRows / kTileShape.warps_along_rows;
  static constexpr int kTokenTiles = kTokens / kMmaTokens / kTileShape.warps_along_tokens();
  // The last kCopiers threads copy: the warps that do not multiply, if they are half of all warps,
  // else all.
  static constexpr int kCopiers =
      kActiveWarps * kWarpLanes > kGemmThreads / 2 ? kGemmThreads : kGemmThreads / 2;
  // Pieces per row, and rows per pass: all copiers copy one piece each.
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
  // If a step has few products, the next step's fragments are loaded before it. If it has many,
  // they hide the loads of another warp, and the registers are needed for sums.
  static constexpr int kFragments = kRowTiles * kTokenTiles <= 4 ? 2 : 1;

  static_assert(kRows % kPassRows == 0 && kTokens % kPassRows == 0 && kStageK % 32 == 0);
  static_assert(kWeightPasses * kPassRows % 8 ==
                0);  // the swizzle continues from weights to tokens
  static_assert(kRowTiles * kTileShape.warps_along_rows * kMmaRows == kRows);
  static_assert(kTokenTiles * kTileShape.warps_along_tokens() * kMmaTokens == kTokens);

  // The value that piece numbers of row `row` are XORed with.
  static constexpr TLM_HOST_DEVICE int Swizzle(int row) {
    return kPieces >= 8 ? row % 8 : row / 2 % 4;
  }
  // The XOR of byte addresses between pass 0 and pass `pass` that follows from it.
  static constexpr TLM_HOST_DEVICE int PassSwizzle(int pass) {
    return (Swizzle(pass * kPassRows) ^ Swizzle(0)) * kPieceBytes;
  }
  // Byte offset, within a stage's weights or tokens, of piece `piece` of row `row`.
  static constexpr TLM_HOST_DEVICE int PieceAt(int row, int piece) {
    return (row * kPieces + (piece ^ Swizzle(row))) * kPieceBytes;
  }
};

// A tile's coordinates.
struct TilePlace {
  int row_tile;
  int token_tile;
};
TLM_DEVICE TilePlace PlaceOf(const GemmArgs& args, int tile) {
  if (args.token_tiles == 1) return {tile, 0};  // the usual case: no division
  return {tile / args.token_tiles, tile % args.token_tiles};
}

// Walks the stages of a thread block's tiles in order: the tile, and the position along k within
// it.
template <int kTile>
struct StageCursor {
  int tile;
  int k;

  TLM_DEVICE StageCursor() : tile(static_cast<int>(blockIdx.x)), k(0) {}
  TLM_DEVICE bool Done(const GemmArgs& args) const {
    return tile >= args.row_tiles * args.token_tiles;
  }
  TLM_DEVICE void Advance(const GemmArgs& args) {
    k += MmaShape<kTile>::kStageK;
    if (k < static_cast<int>(args.k)) return;
    k = 0;
    tile += static_cast<int>(gridDim.x);
  }
};

// One copier thread: in every pass it copies one piece, of row `row` + pass * kPassRows.
template <int kTile>
struct StageCopier {
  using Shape = MmaShape<kTile>;

  const GemmArgs& args;
  StageCursor<kTile> cursor;
  int slot = 0;
  int row;  // negative: this thread is no copier
  int piece;
  int target;  // byte of a stage that its piece of pass 0 goes to
  int k_end;   // from this stage k on, this thread's pieces are beyond k
  // For the cursor's tile: addresses of the pieces at k = 0, and which rows exist.
  const char* weights[Shape::kWeightPasses];
  const char* tokens[Shape::kTokenPasses];
  uint32_t existing = 0;  // one bit per pass, weights first

  TLM_DEVICE explicit StageCopier(const GemmArgs& a) : args(a) {
    const int index = static_cast<int>(threadIdx.x) - (kGemmThreads - Shape::kCopiers);
    row = index < 0 ? -1 : index / Shape::kPieces;
    piece = index < 0 ? 0 : index % Shape::kPieces;
    target = Shape::PieceAt(index < 0 ? 0 : row, piece);
    k_end = static_cast<int>(args.k) - piece * kPieceElements;
  }

  // Whether there is a stage left for this thread to copy; uniform in a warp.
  TLM_DEVICE bool BeginStage() {
    if (row < 0 || cursor.Done(args)) return false;
    if (cursor.k == 0) FindRows();
    return true;
  }

  // Finds the rows of the cursor's tile; rows of consecutive passes are kPassRows apart.
  TLM_DEVICE void FindRows() {
    const TilePlace place = PlaceOf(args, cursor.tile);
    const int first = place.row_tile * Shape::kRows + row;
    const int first_token = place.token_tile * Shape::kTokens + row;
    const int n = static_cast<int>(args.n);
    // Up to here all rows exist and are in order; in a gated matrix that excludes a last group of
    // fewer than 16 gates.
    const int plain = args.gated ? n & -(2 * kGateGroup) : n;
    const int64_t stride = args.w_stride * 2;
    const char* const from =
        static_cast<const char*>(args.w) + first * stride + piece * kPieceBytes;
#pragma unroll
    for (int pass = 0; pass < Shape::kWeightPasses; ++pass) {
      weights[pass] = from + pass * Shape::kPassRows * stride;
    }
    existing = (1u << Shape::kWeightPasses) - 1;
    if ((place.row_tile + 1) * Shape::kRows > plain) FindLastRows(first, plain, n, stride);
    const int m = static_cast<int>(args.m);
    const int64_t token_stride = args.x_stride * 2;
    const char* const x =
        static_cast<const char*>(args.x) + first_token * token_stride + piece * kPieceBytes;
#pragma unroll
    for (int pass = 0; pass < Shape::kTokenPasses; ++pass) {
      if (first_token + pass * Shape::kPassRows < m)
        existing |= 1u << (Shape::kWeightPasses + pass);
      tokens[pass] = x + pass * Shape::kPassRows * token_stride;
    }
  }

  // Corrects the addresses in a tile with rows from `plain` on: at most one narrow group, whose ups
  // directly follow its gates, then no rows.
  TLM_DEVICE void FindLastRows(int first, int plain, int n, int64_t stride) {
    const int width = (n - plain) / 2;
#pragma unroll
    for (int pass = 0; pass < Shape::kWeightPasses; ++pass) {
      const int within = first + pass * Shape::kPassRows - plain;  // within the narrow group
      if (within < 0) continue;
      const int index = within & (kGateGroup - 1);
      if (within >= 2 * kGateGroup || index >= width) existing &= ~(1u << pass);
      if (within >= kGateGroup) weights[pass] += (width - kGateGroup) * stride;
    }
  }

  // Begins copying this thread's piece of pass `pass`; zeros if it does not exist.
  TLM_DEVICE void Copy(int pass) const {
    const char* const from =
        pass < Shape::kWeightPasses ? weights[pass] : tokens[pass - Shape::kWeightPasses];
    CopyAsync16(SharedMemory<unsigned char>() + slot * Shape::kStageBytes +
                    (target ^ Shape::PassSwizzle(pass)) + pass * Shape::kPassBytes,
                from + cursor.k * 2, (existing >> pass & 1) != 0 && cursor.k < k_end);
  }
  // Copies part `share` of `shares` of a stage's passes.
  TLM_DEVICE void CopyShare(int share, int shares) const {
#pragma unroll
    for (int pass = Shape::kPasses * share / shares; pass < Shape::kPasses * (share + 1) / shares;
         ++pass) {
      Copy(pass);
    }
  }
  TLM_DEVICE void EndStage() {
    slot = slot + 1 == Shape::kStages ? 0 : slot + 1;
    cursor.Advance(args);
  }
};

// Begins copying the weights of the first kStages - 1 stages, one group per stage. This may come
// before earlier kernels have ended, because no kernel writes weights.
template <int kTile>
TLM_DEVICE void CopyFirstWeights(StageCopier<kTile>& copier) {
  using Shape = MmaShape<kTile>;
  for (int stage = 0; stage < Shape::kStages - 1; ++stage) {
    if (copier.BeginStage()) {
#pragma unroll
      for (int pass = 0; pass < Shape::kWeightPasses; ++pass) copier.Copy(pass);
      copier.EndStage();
    }
    CopyAsyncCommit();
  }
}

// Prefetches the first rows of the thread block's first tile to L2, while memory would be idle
// until earlier kernels have ended. Whole rows, not the next bytes of every row: so each stage
// later finds some of its rows in L2, and memory delivers the others, from the first stage to the
// last.
//
// One thread issues one instruction: the rows are contiguous. It belongs to a warp that copies no
// weights in such tiles. The instruction takes its operands from uniform registers; for addresses
// that differ between lanes the compiler makes a loop over the lanes.
template <int kTile>
TLM_DEVICE void PrefetchWeights(const GemmArgs& args) {
  using Shape = MmaShape<kTile>;
  static_assert(Shape::kCopiers <= kGemmThreads - kWarpLanes);
  if (threadIdx.x != 0 || args.prefetch_bytes == 0) return;
  const int row = PlaceOf(args, static_cast<int>(blockIdx.x)).row_tile * Shape::kRows;
  const int left = static_cast<int>(args.n) - row;
  const int64_t rows = left < Shape::kRows ? left : Shape::kRows;
  const int64_t bytes = ((rows - 1) * args.w_stride + args.k) * 2;
  PrefetchToL2(static_cast<const char*>(args.w) + row * args.w_stride * 2,
               bytes < args.prefetch_bytes ? static_cast<int>(bytes) : args.prefetch_bytes);
}

// Copies the rows of x of stages [kFirst, kFirst + kCount), and advances `cursor` over them.
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
    const int first = PlaceOf(args, cursor.tile).token_tile * Shape::kTokens + row;
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

// Copies the rows of x of the first kStages - 1 stages, by all threads, through registers: so a
// stage waits for its own cp.async group only. All loads are in flight at once, or in two halves if
// a thread has more than 16 pieces.
template <int kTile>
TLM_DEVICE void CopyFirstTokens(const GemmArgs& args) {
  using Shape = MmaShape<kTile>;
  constexpr int kAhead = Shape::kStages - 1;
  constexpr int kPieces = kAhead * Shape::kTokens * Shape::kPieces / kGemmThreads;
  StageCursor<kTile> cursor;
  if constexpr (kPieces <= 16) {
    CopyTokens<kTile, 0, kAhead>(args, cursor);
  } else {
    CopyTokens<kTile, 0, kAhead / 2>(args, cursor);
    CopyTokens<kTile, kAhead / 2, kAhead - kAhead / 2>(args, cursor);
  }
}

}  // namespace tlm::simt

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_GEMM_GEMM_RING_H_
