// K and V tiles in shared memory: how they lie, how they get there, and where a warp's matrix
// fragments are in them. Included by attention_mma.h only.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_TILES_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_TILES_H_

#include "model/ops/cuda/kernels/attention_device.h"

namespace tlm::simt {

// --- Layout. ---

// Rows of kWidth 16-bit elements in shared memory, in pieces of 16 bytes. Groups of kShuffled
// pieces are shuffled by the row's number, so that the same piece of eight consecutive rows lies in
// eight different groups of banks: all of it where rows are a multiple of 128 bytes long, half or
// a quarter where their lengths already spread.
template <int kWidth>
struct Swizzled {
  static constexpr int kPieces = kWidth / 8;
  static constexpr int kPowerOfTwo = kPieces & -kPieces;
  static constexpr int kShuffled = kPowerOfTwo < 8 ? kPowerOfTwo : 8;

  // What a row's pieces are shuffled by. Rows eight apart are shuffled alike.
  static TLM_DEVICE int Shuffle(int row) { return row % 8 / (8 / kShuffled); }
  // In elements.
  static TLM_DEVICE int Offset(int row, int piece) {
    return row * kWidth + (piece ^ Shuffle(row)) * 8;
  }
};

// What a lane addresses when a warp loads matrices: from a row and piece of its own to others at
// the same distance for every lane, which are known when compiled, all but an exclusive or.
template <int kWidth, typename T>
class LaneMatrices {
 public:
  TLM_DEVICE LaneMatrices(const T* matrix, int row, int piece)
      : row_(matrix + row * kWidth), shuffled_(piece ^ Swizzled<kWidth>::Shuffle(row)) {}

  // `rows` is a multiple of 8; `piece` and the lane's own have no bit in common below kShuffled.
  TLM_DEVICE const T* At(int rows, int piece) const {
    constexpr int kShuffled = Swizzled<kWidth>::kShuffled;
    return row_ + (rows * kWidth + piece / kShuffled * kShuffled * 8) +
           ((piece % kShuffled) ^ shuffled_) * 8;
  }

 private:
  const T* row_;
  int shuffled_;
};

TLM_DEVICE int LaneInWarp() { return static_cast<int>(threadIdx.x % kWarpLanes); }

// A fragments: At(0, 2 i) is that of rows [row, row + 16) and columns [column + 16 i, ..).
// Transposed, B fragments: At(16 step, 2 i) is that of rows [row + 16 step, ..), the same columns.
template <int kWidth, typename T>
TLM_DEVICE LaneMatrices<kWidth, T> RowFragments(const T* matrix, int row, int column = 0) {
  const int lane = LaneInWarp();
  return {matrix, row + lane % 16, column / 8 + lane / 16};
}
// B fragments of a matrix whose rows are the columns of B: At(16 i, 2 step).
template <int kWidth, typename T>
TLM_DEVICE LaneMatrices<kWidth, T> ColumnFragments(const T* matrix, int row) {
  const int lane = LaneInWarp();
  return {matrix, row + lane / 16 * 8 + lane % 8, lane / 8 % 2};
}

// --- Loading. ---

// Brings the tiles of a block's units, one after the other over the borders of units, to two stages
// of a K and a V tile each in turn.
template <int kHeadDim, typename T>
class TileStream {
 public:
  static constexpr int kTileElements = kAttentionTile * kHeadDim;

  TLM_DEVICE TileStream(const AttentionKernelArgs& args, T* stages) : args_(args), stages_(stages) {
    unit_ = FirstUnits(args)[blockIdx.x];
    end_ = FirstUnits(args)[blockIdx.x + 1];
    Enter();
  }

  // Begins the copies of the next tile, in two groups: K, then V; groups of nothing after the last.
  // Keys that no row sees become zeros.
  TLM_DEVICE void Fetch() {
    if (unit_ < end_) {
      const int64_t kv_tile = int64_t{block_} * args_.layers * 2 * args_.num_kv_heads + kv_head_;
      const T* const keys = static_cast<const T*>(args_.cache) + kv_tile * kTileElements;
      T* const stage = stages_ + next_stage_ * 2 * kTileElements;
      Copy(keys, stage);
      CopyAsyncCommit();
      Copy(keys + int64_t{args_.num_kv_heads} * kTileElements, stage + kTileElements);
      CopyAsyncCommit();
      next_stage_ ^= 1;
      Advance();
    } else {
      CopyAsyncCommit();
      CopyAsyncCommit();
    }
  }

 private:
  // Each group of kShuffled threads has a row, and every so many rows after it.
  TLM_DEVICE void Copy(const T* from, T* to) const {
    constexpr int kGroup = Swizzled<kHeadDim>::kShuffled;
    constexpr int kRowsAtOnce = kAttentionThreads / kGroup;
    const int row = static_cast<int>(threadIdx.x) / kGroup;
    const int piece = static_cast<int>(threadIdx.x) % kGroup;
    from += row * kHeadDim + piece * 8;
    to += Swizzled<kHeadDim>::Offset(row, piece);
#pragma unroll
    for (int rows = 0; rows < kAttentionTile; rows += kRowsAtOnce) {
      const bool seen = seen_(row + rows);
#pragma unroll
      for (int i = 0; i < kHeadDim; i += kGroup * 8) {
        CopyAsync16(to + rows * kHeadDim + i, from + rows * kHeadDim + i, seen);
      }
    }
  }
  // The block's id is looked up a tile ahead of its use.
  TLM_DEVICE void Advance() {
    ++tile_;
    seen_.first -= kAttentionTile;
    seen_.last -= kAttentionTile;
    if (tile_ < unit_end_) {
      block_ = table_[tile_];
    } else {
      ++unit_;
      Enter();
    }
  }
  TLM_DEVICE void Enter() {
    for (; unit_ < end_; ++unit_) {
      const AttentionUnit& unit = UnitAt(args_, unit_);
      tile_ = FirstTileOfUnit(args_, unit);
      unit_end_ = unit.end;
      if (tile_ >= unit_end_) continue;
      kv_head_ = unit.kv_head;
      seen_ = SeenByAny(args_, unit, tile_);
      table_ = args_.block_tables + unit.table;
      block_ = table_[tile_];
      return;
    }
  }

  const AttentionKernelArgs& args_;
  T* const stages_;
  int next_stage_ = 0;
  int unit_ = 0;
  int end_ = 0;
  int unit_end_ = 0;
  int tile_ = 0;
  int block_ = 0;
  int kv_head_ = 0;
  Seen seen_{0, 0};
  const int32_t* table_ = nullptr;
};

}  // namespace tlm::simt

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_TILES_H_
