// K and V tiles in shared memory: their layout, their loading, and the addresses of a warp's matrix
// fragments in them. Included by attention_mma.h only.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_ATTENTION_TILES_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_ATTENTION_TILES_H_

#include "model/ops/cuda/kernels/attention/attention_device.h"

namespace tlm::simt {

// --- Layout. ---

// Rows of kWidth 16-bit elements in shared memory, in pieces of 16 bytes. Groups of kShuffled
// pieces are shuffled by the row's number, so that the same piece of eight consecutive rows is in
// eight different groups of banks. Rows of a multiple of 128 bytes need the full shuffle; other
// lengths already spread and need half or a quarter of it.
template <int kWidth>
struct Swizzled {
  static constexpr int kPieces = kWidth / 8;
  static constexpr int kPowerOfTwo = kPieces & -kPieces;
  static constexpr int kShuffled = kPowerOfTwo < 8 ? kPowerOfTwo : 8;

  // The XOR of a row's piece numbers. Rows eight apart have the same.
  static TLM_DEVICE int Shuffle(int row) { return row % 8 / (8 / kShuffled); }
  // Returns an offset in elements.
  static TLM_DEVICE int Offset(int row, int piece) {
    return row * kWidth + (piece ^ Shuffle(row)) * 8;
  }
};

// A lane's addresses when a warp loads matrices: from the lane's own row and piece to others at the
// same distance for every lane. Distances are known at compile time, except for one exclusive or.
template <int kWidth, typename T>
class LaneMatrices {
 public:
  // `matrix` is in shared memory, 128-byte aligned.
  TLM_DEVICE LaneMatrices(const T* matrix, int row, int piece)
      : offset_(static_cast<int>(reinterpret_cast<const unsigned char*>(matrix) -
                                 SharedMemory<unsigned char>()) +
                row * kRowBytes + (piece ^ Swizzled<kWidth>::Shuffle(row)) * 16) {}

  // `rows` is a multiple of 8; `piece` and the lane's piece have no common bit below kShuffled.
  TLM_DEVICE T* At(int rows, int piece) const {
    constexpr int kShuffled = Swizzled<kWidth>::kShuffled;
    // Rows begin at multiples of kShuffled pieces.
    const int at =
        (offset_ ^ piece % kShuffled * 16) + rows * kRowBytes + piece / kShuffled * kShuffled * 16;
    return reinterpret_cast<T*>(SharedMemory<unsigned char>() + at);
  }

 private:
  static constexpr int kRowBytes = 2 * kWidth;
  static_assert(sizeof(T) == 2);

  int offset_;  // in shared memory
};

TLM_DEVICE int LaneInWarp() { return static_cast<int>(threadIdx.x % kWarpLanes); }
TLM_DEVICE int WarpOfBlock() { return static_cast<int>(threadIdx.x / kWarpLanes); }

// A fragments: At(0, 2 i) has rows [row, row + 16) and columns [column + 16 i, ..). Transposed, B
// fragments: At(16 step, 2 i) has rows [row + 16 step, ..), the same columns.
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

// The operands that Scores and WeighValues load from tiles in 16 bits: Load returns 16 columns of B
// as two fragments.
template <int kHeadDim, typename T>
struct KeyFragments {
  const LaneMatrices<kHeadDim, T> fragments;

  // Begins at key `row`.
  TLM_DEVICE KeyFragments(const T* keys, int row)
      : fragments(ColumnFragments<kHeadDim>(keys, row)) {}
  TLM_DEVICE void Load(int step, int i, uint32_t (&b)[4]) const {
    LoadMatrices(b, fragments.At(16 * i, 2 * step));
  }
  // Repairs the scores of keys with NaN elements, which Load does not convert in 8 bits.
  template <int N>
  TLM_DEVICE void Mend(float (&)[N][2][4]) const {}
};
template <int kHeadDim, typename T>
struct ValueFragments {
  const LaneMatrices<kHeadDim, T> fragments;

  // Begins at column 16 * `first`.
  TLM_DEVICE ValueFragments(const T* values, int first)
      : fragments(RowFragments<kHeadDim>(values, 0, 16 * first)) {}
  TLM_DEVICE void Load(int step, int column, uint32_t (&b)[4]) const {
    LoadMatricesTransposed(b, fragments.At(16 * step, 2 * column));
  }
  template <int N>
  TLM_DEVICE void Mend(float (&)[N][2][4]) const {}
};

// --- Loading. ---

// Two stages of a K and a V tile each, for a 16-bit cache: copied bytes are used unchanged.
template <int kHeadDim, typename T>
class PlainTiles {
 public:
  static constexpr int kTileElements = kAttentionTile * kHeadDim;
  static constexpr int kPageBytes = kTileElements * sizeof(T);

  // `shared` has MmaAttentionSharedBytes; the first four tiles belong to this object.
  TLM_DEVICE explicit PlainTiles(T* shared) : stages_(shared) {}

  // Begins copying a tile, K (part 0) or V, from its page; `page` is K's, and V's is `to_values`
  // bytes after it. Keys that no row sees become zeros. Each group of kShuffled threads has one row
  // and every kRowsAtOnce-th row after it.
  TLM_DEVICE void Copy(const void* page, int64_t to_values, int stage, int part,
                       const Seen& seen) const {
    constexpr int kGroup = Swizzled<kHeadDim>::kShuffled;
    constexpr int kRowsAtOnce = kAttentionThreads / kGroup;
    const int row = static_cast<int>(threadIdx.x) / kGroup;
    const int piece = static_cast<int>(threadIdx.x) % kGroup;
    const T* const from =
        reinterpret_cast<const T*>(static_cast<const unsigned char*>(page) + part * to_values) +
        row * kHeadDim + piece * 8;
    T* const to =
        stages_ + (2 * stage + part) * kTileElements + Swizzled<kHeadDim>::Offset(row, piece);
#pragma unroll
    for (int rows = 0; rows < kAttentionTile; rows += kRowsAtOnce) {
      const bool row_seen = seen(row + rows);
#pragma unroll
      for (int i = 0; i < kHeadDim; i += kGroup * 8) {
        CopyAsync16(to + rows * kHeadDim + i, from + rows * kHeadDim + i, row_seen);
      }
    }
  }
  // Converts this warp's arrived copies of a tile to the form that all warps read after a barrier.
  template <bool kIsNarrow>
  TLM_DEVICE void Take(int, int) const {}
  // Returns fragments of the stage's K tile, which V follows.
  TLM_DEVICE KeyFragments<kHeadDim, T> Keys(int stage, int row = 0) const {
    return {stages_ + stage * 2 * kTileElements, row};
  }
  TLM_DEVICE ValueFragments<kHeadDim, T> Values(int stage, int first) const {
    return {stages_ + (stage * 2 + 1) * kTileElements, first};
  }
  // For narrow units: the warp's keys, and its columns.
  TLM_DEVICE KeyFragments<kHeadDim, T> NarrowKeys(int stage) const {
    return Keys(stage, 16 * WarpOfBlock());
  }
  TLM_DEVICE ValueFragments<kHeadDim, T> NarrowValues(int stage) const {
    return Values(stage, WarpOfBlock());
  }
  // Room for two tiles at the end of a unit; `stage` is the next tile's.
  TLM_DEVICE T* Free(int stage) const { return stages_ + (stage ^ 1) * 2 * kTileElements; }

 private:
  T* const stages_;
};

// Brings the tiles of a block's units, one after the other and across units, to two stages
// alternately.
template <typename Tiles>
class TileStream {
 public:
  TLM_DEVICE TileStream(const AttentionKernelArgs& args, const Tiles& tiles)
      : args_(args),
        tiles_(tiles),
        to_values_(int64_t{args.num_kv_heads} * Tiles::kPageBytes),
        block_pages_(args.layers * 2 * args.num_kv_heads) {
    unit_ = FirstUnits(args)[blockIdx.x];
    end_ = FirstUnits(args)[blockIdx.x + 1];
    Enter();
  }

  // Begins the copies of the next tile, in two groups: K, then V; empty groups after the last tile.
  TLM_DEVICE void Fetch() {
    if (unit_ < end_) {
      const unsigned char* const page = Page();
      tiles_.Copy(page, to_values_, next_stage_, 0, seen_);
      CopyAsyncCommit();
      tiles_.Copy(page, to_values_, next_stage_, 1, seen_);
      CopyAsyncCommit();
      next_stage_ ^= 1;
      Advance();
    } else {
      CopyAsyncCommit();
      CopyAsyncCommit();
    }
  }

  // Call before WaitForPrevious: calls Fetch if no kernel of the batch writes the tile. Prefetches
  // the next tile to L2, where a key that is still to be written does no harm.
  TLM_DEVICE bool FetchStored() {
    const bool stored = unit_ < end_ && (tile_ + 1) * kAttentionTile <= UnitAt(args_, unit_).stored;
    if (stored) Fetch();
    if (threadIdx.x == 0 && unit_ < end_) {
      PrefetchToL2(Page(), Tiles::kPageBytes);
      PrefetchToL2(Page() + to_values_, Tiles::kPageBytes);
    }
    return stored;
  }

 private:
  // Returns the address of the tile's keys.
  TLM_DEVICE const unsigned char* Page() const {
    return head_ + int64_t{block_} * block_pages_ * Tiles::kPageBytes;
  }
  // Looks up the block's id one tile ahead of its use.
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
      head_ = static_cast<const unsigned char*>(args_.cache) +
              int64_t{unit.kv_head} * Tiles::kPageBytes;
      seen_ = SeenByAny(args_, unit, tile_);
      table_ = args_.block_tables + unit.table;
      block_ = table_[tile_];
      return;
    }
  }

  const AttentionKernelArgs& args_;
  const Tiles tiles_;
  const int64_t to_values_;
  const int block_pages_;
  int next_stage_ = 0;
  int unit_ = 0;
  int end_ = 0;
  int unit_end_ = 0;
  int tile_ = 0;
  int block_ = 0;
  const unsigned char* head_ = nullptr;  // the unit's kv head in block 0
  Seen seen_{0, 0};
  const int32_t* table_ = nullptr;
};

}  // namespace tlm::simt

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_ATTENTION_TILES_H_
