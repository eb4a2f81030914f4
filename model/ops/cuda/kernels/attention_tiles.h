// K and V tiles in shared memory: how they lie, how they get there, and where a warp's matrix
// fragments are in them. Included by attention_mma.h only.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_TILES_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_TILES_H_

#include "model/ops/cuda/kernels/attention_device.h"
#include "model/ops/cuda/kernels/fp8_rows.h"

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

// Two stages of a K and a V tile each, as a 16-bit cache has them: what is copied is what is read.
template <int kHeadDim, typename T>
class PlainTiles {
 public:
  static constexpr int kTileElements = kAttentionTile * kHeadDim;

  // `shared` is MmaAttentionSharedBytes, of which the first four tiles are this's.
  TLM_DEVICE explicit PlainTiles(T* shared) : stages_(shared) {}

  // Begins copying a page's tile, K (part 0) or V. Keys that no row sees become zeros. Each group
  // of kShuffled threads has a row, and every so many rows after it.
  TLM_DEVICE void Copy(const void* cache, int64_t page, int stage, int part,
                       const Seen& seen) const {
    constexpr int kGroup = Swizzled<kHeadDim>::kShuffled;
    constexpr int kRowsAtOnce = kAttentionThreads / kGroup;
    const int row = static_cast<int>(threadIdx.x) / kGroup;
    const int piece = static_cast<int>(threadIdx.x) % kGroup;
    const T* const from =
        static_cast<const T*>(cache) + page * kTileElements + row * kHeadDim + piece * 8;
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
  // Makes of this thread's copies of a tile, which have arrived, what others read after a barrier.
  TLM_DEVICE void Take(int, int) const {}
  // The K tile of a stage; V follows it.
  TLM_DEVICE const T* Keys(int stage) const { return stages_ + stage * 2 * kTileElements; }
  // Room for two tiles at the end of a unit, `stage` being the next tile's.
  TLM_DEVICE T* Free(int stage) const { return stages_ + (stage ^ 1) * 2 * kTileElements; }

 private:
  T* const stages_;
};

// The same of a cache in 8 bits (fp8_rows.h). The stages hold bytes, half as many, and where the
// second one would be is one K and one V tile in 16 bits: K is made before the barrier that says it
// is here, when all warps have done with the scores of the tile before, and V likewise. A warp has
// rows [16 w, 16 w + 16) of a page: a thread converts what it has copied itself, and the scales are
// its warp's own.
template <int kHeadDim, typename T>
class Fp8Tiles {
 public:
  static constexpr int kTileElements = kAttentionTile * kHeadDim;

  TLM_DEVICE explicit Fp8Tiles(T* shared)
      : bytes_(reinterpret_cast<unsigned char*>(shared)),
        scales_(bytes_ + kScales),
        keys_(shared + 2 * kTileElements) {}

  TLM_DEVICE void Copy(const void* cache, int64_t page, int stage, int part,
                       const Seen& seen) const {
    const unsigned char* const from =
        static_cast<const unsigned char*>(cache) + page * Fp8PageBytes(kHeadDim);
    const int tile = 2 * stage + part;
    ForPieces([&](int i, int row, int) {
      const int at = (FirstRow() * kRowPieces + i) * 16;
      CopyAsync16(bytes_ + tile * kTileElements + at, from + at, seen(FirstRow() + row));
    });
    if (LaneInWarp() == 0) {
      CopyAsync16(scales_ + tile * kAttentionTile + FirstRow(),
                  from + Fp8ScaleOffset(kHeadDim, FirstRow()));
    }
  }
  TLM_DEVICE void Take(int stage, int part) const {
    SyncWarp();  // the scales
    const int tile = 2 * stage + part;
    const unsigned char* const scales = scales_ + tile * kAttentionTile + FirstRow();
    const unsigned char* const from = bytes_ + tile * kTileElements + FirstRow() * kRowPieces * 16;
    T* const to = keys_ + part * kTileElements;
    ForPieces([&](int i, int row, int piece) {
      const uint32_t scale = scales[row];
      const uint32_t factor = Fp8Factor<T>(scale);
      const Quad bytes = *reinterpret_cast<const Quad*>(from + i * 16);
      Quad low, high;  // the halves of the row
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        Fp8Widen<T>(bytes.word[w], factor, low.word[w], high.word[w]);
      }
      T* const to_low = to + Swizzled<kHeadDim>::Offset(FirstRow() + row, piece);
      T* const to_high = to + Swizzled<kHeadDim>::Offset(FirstRow() + row, piece + kRowPieces);
      *reinterpret_cast<Quad*>(to_low) = low;
      *reinterpret_cast<Quad*>(to_high) = high;
      if (Fp8MayHaveNaN(scale)) {
#pragma unroll 1
        for (int e = 0; e < 16; ++e) {
          if (Fp8IsNaN(from[i * 16 + e])) (e % 2 == 0 ? to_low : to_high)[e / 2].bits = kNaN;
        }
      }
    });
  }
  TLM_DEVICE const T* Keys(int) const { return keys_; }
  TLM_DEVICE T* Free(int) const { return keys_; }

 private:
  static constexpr int kRowPieces = kHeadDim / 16;                      // 16 bytes each
  static constexpr int kPieces = 16 * kRowPieces;                       // of a warp's rows
  static constexpr uint16_t kNaN = 0x7fff;                              // of either type
  static constexpr size_t kScales = MmaAttentionSharedBytes(kHeadDim);  // where they begin
  static_assert(kHeadDim % 16 == 0 && kAttentionTile == 16 * kAttentionThreads / kWarpLanes &&
                kAttentionTile == kFp8PageTokens);

  static TLM_DEVICE int FirstRow() { return static_cast<int>(threadIdx.x) / kWarpLanes * 16; }
  // visit(i, row, piece) for the lane's of the warp's pieces: piece i is `piece` of its row `row`.
  template <typename Visit>
  static TLM_DEVICE void ForPieces(Visit visit) {
#pragma unroll 4
    for (int j = 0; j < kPieces; j += kWarpLanes) {
      const int i = j + LaneInWarp();
      if (j + kWarpLanes <= kPieces || i < kPieces) visit(i, i / kRowPieces, i % kRowPieces);
    }
  }

  unsigned char* const bytes_;   // [2 stages][K, V][64][head_dim]
  unsigned char* const scales_;  // [2 stages][K, V][64]
  T* const keys_;                // [K, V] tiles
};

// Brings the tiles of a block's units, one after the other over the borders of units, to two stages
// in turn.
template <typename Tiles>
class TileStream {
 public:
  TLM_DEVICE TileStream(const AttentionKernelArgs& args, const Tiles& tiles)
      : args_(args), tiles_(tiles) {
    unit_ = FirstUnits(args)[blockIdx.x];
    end_ = FirstUnits(args)[blockIdx.x + 1];
    Enter();
  }

  // Begins the copies of the next tile, in two groups: K, then V; groups of nothing after the last.
  TLM_DEVICE void Fetch() {
    if (unit_ < end_) {
      const int64_t page = int64_t{block_} * args_.layers * 2 * args_.num_kv_heads + kv_head_;
      tiles_.Copy(args_.cache, page, next_stage_, 0, seen_);
      CopyAsyncCommit();
      tiles_.Copy(args_.cache, page + args_.num_kv_heads, next_stage_, 1, seen_);
      CopyAsyncCommit();
      next_stage_ ^= 1;
      Advance();
    } else {
      CopyAsyncCommit();
      CopyAsyncCommit();
    }
  }

 private:
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
  const Tiles tiles_;
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
