// K and V tiles in shared memory: their layout, their loading, and the addresses of a warp's matrix
// fragments in them. Included by attention_mma.h only.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_ATTENTION_TILES_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_ATTENTION_TILES_H_

#include "model/ops/cuda/kernels/attention/attention_device.h"
#include "model/ops/cuda/kernels/attention/fp8_rows.h"

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

// The same for a cache in 8 bits (fp8_rows.h). The stages hold bytes, half as many. A warp copies
// rows [16 w, 16 w + 16) of a page; their scales, for K and V, come with K.
//
// Wide units: one K and one V tile in 16 bits take the place of the second stage. K is widened
// before the barrier for its arrival, when all warps have finished the scores of the previous tile;
// V likewise. Each thread widens the bytes that it copied.
//
// Narrow units: only one warp needs each byte, and widens it to its fragments. The bytes of a
// 16-byte piece, as pairs, are a matrix for LoadMatrices; a word's even and odd bytes are the
// elements of two words of B (fp8_rows.h).
//   K   rows are columns of B: a word has elements 2t, 2t + 8, 2t + 1, 2t + 9 of a step, of one key
//   V   transposed: a word has columns c and c + 8 of each of two keys
// All warps need the scales of V: the factors of its rows take the place of the tiles in 16 bits.
template <int kHeadDim, typename T>
class Fp8Tiles {
  static constexpr int kRowPieces = kHeadDim / 16;  // 16 bytes each
  using Pieces = LaneMatrices<kHeadDim / 2, T>;     // pairs of bytes

 public:
  static constexpr int kTileElements = kAttentionTile * kHeadDim;
  static constexpr int kPageBytes = static_cast<int>(Fp8PageBytes(kHeadDim));

  TLM_DEVICE explicit Fp8Tiles(T* shared)
      : bytes_(reinterpret_cast<unsigned char*>(shared)),
        scales_(bytes_ + kScales),
        keys_(shared + 2 * kTileElements) {}

  TLM_DEVICE void Copy(const void* page, int64_t to_values, int stage, int part,
                       const Seen& seen) const {
    const unsigned char* const keys = static_cast<const unsigned char*>(page);
    const unsigned char* const from = keys + part * to_values;
    const T* const to = Matrix(Bytes(stage, part));
    ForPieces<2>([&](int, int row, int piece, int rows, int pieces) {
      const unsigned char* const lane_from = from + (row * kHeadDim + piece * 16);
      CopyAsync16(Pieces(to, row, piece).At(rows, pieces),
                  lane_from + (rows * kHeadDim + pieces * 16), seen(row + rows));
    });
    const int lane = LaneInWarp();
    if (part == 0 && lane < 2) {
      const unsigned char* const of = lane == 0 ? keys : keys + to_values;
      CopyAsync16(scales_ + (2 * stage + lane) * kAttentionTile + FirstRow(),
                  of + FirstRow() + Fp8ScaleOffset(kHeadDim, 0));
    }
  }
  template <bool kIsNarrow>
  TLM_DEVICE void Take(int stage, int part) const {
    if constexpr (!kIsNarrow) Widen(stage, part);
  }

  TLM_DEVICE KeyFragments<kHeadDim, T> Keys(int) const { return {keys_, 0}; }
  TLM_DEVICE ValueFragments<kHeadDim, T> Values(int, int first) const {
    return {keys_ + kTileElements, first};
  }

  class NarrowKeyFragments {
   public:
    TLM_DEVICE void Load(int step, int, uint32_t (&b)[4]) {
      if (step % 2 == 0) {
        LoadMatrices(words_, (step + 1 < kRowPieces ? pairs_ : last_).At(0, step));
      }
      Fp8Widen<T>(words_[step % 2 * 2], factors_[0], b[0], b[1]);
      Fp8Widen<T>(words_[step % 2 * 2 + 1], factors_[1], b[2], b[3]);
    }
    TLM_DEVICE void Mend(float (&s)[1][2][4]) const {
      if ((may_have_nan_ & 0xffffu) == 0) return;
      const int lane = LaneInWarp();
      const int row = FirstRow() + lane % 16;
      bool found = false;
#pragma unroll 1
      for (int i = lane / 16; i < kHeadDim; i += 2) {
        found = found || Fp8IsNaN(tile_[PieceOffset(row, i / 16) + i % 16]);
      }
      const uint32_t lanes = Ballot(found);
      const uint32_t keys = lanes | lanes >> 16;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int key = 8 * j + 2 * (lane % 4) + e % 2;
          if ((keys >> key & 1u) != 0) s[0][j][e] = FloatOfBits(kNaN32);
        }
      }
    }

   private:
    friend class Fp8Tiles;
    TLM_DEVICE NarrowKeyFragments(const unsigned char* tile, uint32_t low, uint32_t high,
                                  uint32_t may_have_nan)
        : tile_(tile),
          pairs_(Matrix(tile), FirstRow() + LaneInWarp() % 16, LaneInWarp() / 16),
          last_(Matrix(tile), FirstRow() + LaneInWarp() % 16, 0),
          factors_{low, high},
          may_have_nan_(may_have_nan) {}

    const unsigned char* tile_;
    Pieces pairs_;  // for 16 keys: two pieces, of two steps, at once
    Pieces last_;   // the last piece alone, if their number is odd
    uint32_t factors_[2];
    uint32_t may_have_nan_;  // bits of the warp's keys, then of its values
    uint32_t words_[4];
  };
  // Call after the barrier for K's arrival, and before a barrier that precedes NarrowValues.
  TLM_DEVICE NarrowKeyFragments NarrowKeys(int stage) const {
    const int lane = LaneInWarp();
    // Each lane of the first half has a key, each lane of the second half a value.
    const uint32_t scale =
        scales_[(2 * stage + lane / 16) * kAttentionTile + FirstRow() + lane % 16];
    const uint32_t factor = Fp8Factor<T>(scale);
    Factors(lane / 16)[FactorPlace(lane % 16)] = static_cast<uint16_t>(factor);
    const uint32_t may_have_nan = Ballot(Fp8MayHaveNaN(scale));
    if (lane == 0) Flags()[WarpOfBlock()] = may_have_nan;
    return {Bytes(stage, 0), Shuffle(factor, lane / 4), Shuffle(factor, lane / 4 + 8),
            may_have_nan};
  }

  class NarrowValueFragments {
   public:
    // A warp's columns are every fourth group of 16, beginning with group `warp`.
    TLM_DEVICE void Load(int step, int column, uint32_t (&b)[4]) {
      uint32_t(&words)[4] = words_[column / 4];
      if (step % 2 == 0) LoadMatricesTransposed(words, pieces_.At(16 * step, column));
      Fp8Widen<T>(words[step % 2 * 2], factors_[step / 2].word[step % 2 * 2], b[0], b[2]);
      Fp8Widen<T>(words[step % 2 * 2 + 1], factors_[step / 2].word[step % 2 * 2 + 1], b[1], b[3]);
    }
    template <int N>
    TLM_DEVICE void Mend(float (&values)[N][2][4]) const {
      if ((flags_.word[0] | flags_.word[1] | flags_.word[2] | flags_.word[3]) >> 16 == 0) return;
      uint32_t found = 0;  // bit 4i + e: the lane's element e of piece i is NaN
#pragma unroll 1
      for (int k = 0; k < 4 * N; ++k) {
        const int piece = WarpOfBlock() + k / 4 * 4;
        if (piece >= kRowPieces) break;
        const int byte = 4 * (LaneInWarp() % 4) + k % 4;
#pragma unroll 1
        for (int row = 0; row < kAttentionTile; ++row) {
          if (Fp8IsNaN(tile_[PieceOffset(row, piece) + byte])) found |= 1u << k;
        }
      }
#pragma unroll
      for (int i = 0; i < N; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          float(&column)[4] = values[i][e % 2];
          if ((found >> (4 * i + e) & 1u) == 0) continue;
          column[e / 2] = column[e / 2 + 2] = FloatOfBits(kNaN32);
        }
      }
    }

   private:
    friend class Fp8Tiles;
    TLM_DEVICE NarrowValueFragments(const unsigned char* tile, const Quad* factors,
                                    const Quad& flags)
        : tile_(tile),
          pieces_(Matrix(tile), LaneInWarp(), WarpOfBlock()),
          factors_{factors[0], factors[1]},
          flags_(flags) {}

    const unsigned char* tile_;
    Pieces pieces_;    // for 32 keys: one piece, of two steps
    Quad factors_[2];  // for keys 2t, 2t + 1 and 2t + 8, 2t + 9 of every step
    Quad flags_;
    uint32_t words_[(kRowPieces + 3) / 4][4];
  };
  TLM_DEVICE NarrowValueFragments NarrowValues(int stage) const {
    return {Bytes(stage, 1), reinterpret_cast<const Quad*>(Factors(1) + LaneInWarp() % 4 * 16),
            *reinterpret_cast<const Quad*>(Flags())};
  }
  TLM_DEVICE T* Free(int) const { return keys_; }

 private:
  static constexpr uint32_t kNaN32 = 0x7fffffff;
  static constexpr uint16_t kNaN = 0x7fff;                              // NaN of both types
  static constexpr size_t kScales = MmaAttentionSharedBytes(kHeadDim);  // offset of the scales
  static_assert(kHeadDim % 16 == 0 && kAttentionTile == 16 * kAttentionThreads / kWarpLanes &&
                kAttentionTile == kFp8PageTokens);

  static TLM_DEVICE int FirstRow() { return 16 * WarpOfBlock(); }
  static TLM_DEVICE int PieceOffset(int row, int piece) {
    return 2 * Swizzled<kHeadDim / 2>::Offset(row, piece);
  }
  static TLM_DEVICE const T* Matrix(const unsigned char* tile) {
    return reinterpret_cast<const T*>(tile);
  }
  TLM_DEVICE unsigned char* Bytes(int stage, int part) const {
    return bytes_ + (2 * stage + part) * kTileElements;
  }
  // [4 lanes][4 steps][2 groups of 8 keys][2 keys]: NarrowValueFragments' layout for V (part 1).
  TLM_DEVICE uint16_t* Factors(int part) const {
    return reinterpret_cast<uint16_t*>(keys_) + part * kAttentionTile;
  }
  // The place of key or value `row` of the warp's 16.
  static TLM_DEVICE int FactorPlace(int row) {
    return row % 8 / 2 * 16 + WarpOfBlock() * 4 + row / 8 * 2 + row % 2;
  }
  // [4 warps]: which of their keys and values may have a NaN.
  TLM_DEVICE uint32_t* Flags() const { return reinterpret_cast<uint32_t*>(Factors(2)); }

  // Calls visit(set, row, piece, rows, pieces) for the lane's share of the warp's pieces: piece +
  // pieces of row + rows in the page; `rows` and `pieces` are compile-time constants. Row numbers
  // are the lane's modulo 8 (set 0), these + 8 (set 1) and, for pieces beyond the last four, the
  // lane's modulo 16 (set 2).
  template <int kAtOnce, typename Visit>
  static TLM_DEVICE void ForPieces(Visit visit) {
    constexpr int kFours = kRowPieces / 4 * 4;
    static_assert(kRowPieces - kFours <= 2);
    const int lane = LaneInWarp();
#pragma unroll kAtOnce
    for (int set = 0; set < 2; ++set) {
#pragma unroll
      for (int i = 0; i < kFours; i += 4) visit(set, FirstRow() + lane % 8, lane / 8, 8 * set, i);
    }
    if (lane / 16 < kRowPieces - kFours) {
      visit(2, FirstRow() + lane % 16, lane / 16 + kFours, 0, 0);
    }
  }

  TLM_DEVICE void Widen(int stage, int part) const {
    SyncWarp();  // the scales
    const int lane = LaneInWarp();
    const uint32_t scale = scales_[(2 * stage + part) * kAttentionTile + FirstRow() + lane % 16];
    const uint32_t factor = Fp8Factor<T>(scale);
    const uint32_t low_rows = Shuffle(factor, lane % 8), high_rows = Shuffle(factor, lane % 8 + 8);
    const unsigned char* const from = Bytes(stage, part);
    T* const to = keys_ + part * kTileElements;
    ForPieces<1>([&](int set, int row, int piece, int rows, int pieces) {
      const Quad bytes =
          *reinterpret_cast<const Quad*>(Pieces(Matrix(from), row, piece).At(rows, pieces));
      const uint32_t row_factor = set == 0 ? low_rows : set == 1 ? high_rows : factor;
      Quad low, high;  // the halves of 16 elements
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        Fp8Widen<T>(bytes.word[w], row_factor, low.word[w], high.word[w]);
      }
      const LaneMatrices<kHeadDim, T> elements(to, row, 2 * piece);
      *reinterpret_cast<Quad*>(elements.At(rows, 2 * pieces)) = low;
      *reinterpret_cast<Quad*>(elements.At(rows, 2 * pieces + 1)) = high;
    });
    if (Ballot(Fp8MayHaveNaN(scale)) == 0) return;
    SyncWarp();
#pragma unroll 1
    for (int i = lane; i < 16 * kHeadDim; i += kWarpLanes) {
      const int at = FirstRow() + i / kHeadDim;
      const int piece = i % kHeadDim / 16;
      if (!Fp8IsNaN(from[PieceOffset(at, piece) + i % 16])) continue;
      to[Swizzled<kHeadDim>::Offset(at, 2 * piece + i % 2) + i % 16 / 2].bits = kNaN;
    }
  }

  unsigned char* const bytes_;   // [2 stages][K, V][64][head_dim], pieces swizzled
  unsigned char* const scales_;  // [2 stages][K, V][64]
  T* const keys_;                // [K, V] tiles
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
