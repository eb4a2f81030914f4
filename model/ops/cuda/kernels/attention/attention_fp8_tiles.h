// K and V tiles in shared memory for a cache in 8 bits: their copying, and their widening to 16
// bits. Included by attention_mma.h only.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_ATTENTION_FP8_TILES_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_ATTENTION_FP8_TILES_H_

#include "model/ops/cuda/kernels/attention/attention_device.h"
#include "model/ops/cuda/kernels/attention/attention_tiles.h"
#include "model/ops/cuda/kernels/attention/fp8_rows.h"

namespace tlm::simt {

// PlainTiles for a cache in 8 bits (fp8_rows.h). The stages hold bytes, half as many. A warp copies
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

}  // namespace tlm::simt

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_ATTENTION_FP8_TILES_H_
