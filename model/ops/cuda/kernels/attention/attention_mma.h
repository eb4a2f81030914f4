// Attention on the tensor cores; see attention.h. Included by attention_mma.cu only.
//
// Map of the kernel, AttendMma<T, head_dim>. Figures are for head_dim 128 and come from the machine
// code for sm_90a (tests/gpu/static checks them); times are estimates.
//
//   grid       persistent: two blocks per multiprocessor, each with a list of units
//              (attention_work.h)
//   block      128 threads, 4 warps, 210 registers; 86 KiB of code: the loops over tiles for wide
//              units, and for narrow units of up to 8 and of up to 16 rows
//   shared     80 KiB. 64: stages[2] of a K and a V tile, [64][head_dim] each, in pieces of 16
//              bytes swizzled by row (attention_tiles.h). 16: q [64][head_dim]; narrow units use 16
//              rows for q, and the rest for P, sums and maxima
//   loads      cp.async of 16 bytes, two groups per tile (K, V), one tile ahead, across units: 32
//              to 64 KiB of a block are in flight; block ids are loaded one tile earlier still
//   barriers   wide units 2 per tile (K has arrived, V has arrived), narrow ones 3; a unit has 2
//              more
//
//   block  let the next kernel start (PDL) | plan, block id | K0 V0; K1 V1 to L2 |
//          wait for the previous kernel | q, K1 V1 | tiles ..
//   tile   wait K | fetch next | S = q K^T | hide, max | 2^x, sum | wait V | rescale | P V, fold
//   unit   epilogue: O / l to the output, or the state to record 0; split items: ticket, and the
//          unit that ends last folds the records (FoldRecords), through the free stage
//
// K0 V0 are fetched before the wait if no kernel of the batch writes them: in decode, all but an
// item's last tile. A block without units ends before the wait and leaves its place to the next
// kernel. Estimated for one token of Qwen3-8B at 1k context on an H200: 6.2 us from the end of the
// QKV product to the start of the output product instead of 7.2, and meanwhile memory reads 22 MB
// of that product's weights instead of 15: 2.4 us of a layer's 95. From 8k on, where attention's
// blocks leave no room for others, 1 to 2 us.
//
// For a cache in 8 bits there is AttendMmaFp8<T, head_dim>: the stages hold bytes, and 256 more
// bytes hold the scales (Fp8Tiles); 218 registers, 106 KiB of code. Wide units widen to one K and
// one V tile in 16 bits, narrow ones to their fragments.
//
//   wide tile     wait K, widen K | fetch next | S .. | wait V, widen V | rescale | P V, fold
//   narrow tile   wait K | fetch next | scales | S, widening .. | wait V | rescale |
//                 P V, widening ..
//
// A warp's S has 16 query rows, its P V 16 rows and columns by 16:
//
//   wide, up to 64 rows     warp w has rows [16 w, 16 w + 16), all keys and all columns. With 256
//                           columns, warps w and w + 2 share rows [16 w, 16 w + 16), w < 2: each
//                           computes their weights, for one half of the columns
//   narrow, up to 16 rows   warp w has all rows: for S and the softmax keys [16 w, 16 w + 16), for
//                           P V columns [16 w, 16 w + 16) of every 64; maxima, sums and P pass
//                           through shared memory. Up to 8 rows: the lanes' second rows take part
//                           only in the products
//
// Each element has the same sequence of operations in both: S over head_dim by 16 from zero; a
// row's sum over a lane's four weights of every 16 keys, then over the four groups of 16, then over
// four lanes; P V over the four groups of 16 from zero.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_ATTENTION_MMA_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_ATTENTION_MMA_H_

#include "model/ops/cuda/kernels/attention/attention_device.h"
#include "model/ops/cuda/kernels/attention/attention_fp8_tiles.h"
#include "model/ops/cuda/kernels/attention/attention_scores.h"
#include "model/ops/cuda/kernels/attention/attention_tiles.h"

namespace tlm::simt {

struct alignas(8) FloatPair {
  float a;
  float b;
};

template <int kHeadDim, typename T, typename Tiles>
struct MmaAttention {
  static constexpr int kTileElements = kAttentionTile * kHeadDim;
  // Groups of 16 columns: of a head, of a warp's share in narrow units, and of a wide warp's
  // products in flight.
  static constexpr int kColumns = kHeadDim / 16;
  static constexpr int kNarrow = (kColumns + 3) / 4;
  static constexpr int kInFlight = kColumns % 2 == 0 ? 2 : 1;
  // Wide units: the number of rows, and the number of warps that share 16 of them.
  static constexpr int kRows = kHeadDim <= 128 ? 64 : 32;
  static constexpr int kSharing = kAttentionMaxRows / kRows;
  static constexpr int kWide = kColumns / kSharing;
  static_assert(kRows == MmaAttentionRows(kHeadDim));

  // The division of a unit among warps: the groups of 16 columns that a warp holds, with the first
  // and their distance; its first row; and the number of halves of its 16 rows.
  struct Wide {
    static constexpr bool kIsNarrow = false;
    static constexpr int kHeld = kWide;
    static constexpr int kStride = 1;
    static constexpr int kHalves = 2;
    static TLM_DEVICE int Row() { return 16 * (Warp() % (4 / kSharing)); }
    static TLM_DEVICE int First() { return kSharing == 1 ? 0 : Warp() / (4 / kSharing) * kWide; }
  };
  template <int kRowHalves>
  struct Narrow {
    static constexpr bool kIsNarrow = true;
    static constexpr int kHeld = kNarrow;
    static constexpr int kStride = 4;
    static constexpr int kHalves = kRowHalves;
    static TLM_DEVICE int Row() { return 0; }
    static TLM_DEVICE int First() { return Warp(); }
  };
  template <typename Shape>
  using State = RowState<Shape::kHeld, Shape::kHalves>;

  const AttentionKernelArgs& args;
  const Tiles tiles;
  T* const q;             // [kRows, head_dim]; narrow units: [16, head_dim], then the arrays below
  Quad* const weights;    // [4 warps][32 lanes]: A fragments
  FloatPair* const sums;  // [4 warps][32 lanes]: the parts of each half
  float* const maxima;    // [16 rows][4 warps]
  TileStream<Tiles> stream;
  int stage = 0;
  int positions[2] = {0, 0};  // positions of the lane's rows in the unit

  static constexpr int kScratchFloats = kRows * kHeadDim / 2;
  // Limited by the rings that fit a stage.
  static constexpr int kFoldThreads = kHeadDim < kAttentionThreads ? kHeadDim : kAttentionThreads;
  static_assert(RecordRing<kFoldThreads>::kBytes <= 2 * kTileElements * sizeof(T));
  static_assert(16 * kHeadDim * sizeof(T) + kAttentionThreads * (sizeof(Quad) + sizeof(FloatPair)) +
                    16 * 4 * sizeof(float) <=
                kRows * kHeadDim * sizeof(T));

  TLM_DEVICE MmaAttention(const AttentionKernelArgs& a, T* shared)
      : args(a),
        tiles(shared),
        q(shared + 4 * kTileElements),
        weights(reinterpret_cast<Quad*>(q + 16 * kHeadDim)),
        sums(reinterpret_cast<FloatPair*>(weights + kAttentionThreads)),
        maxima(reinterpret_cast<float*>(sums + kAttentionThreads)),
        stream(a, tiles) {}

  static TLM_DEVICE int Warp() { return static_cast<int>(threadIdx.x) / kWarpLanes; }
  // Returns the lane's row in each half of 16.
  static TLM_DEVICE int LaneRow(int half) { return LaneInWarp() / 4 + 8 * half; }

  // fetched: the first tile is already being copied.
  TLM_DEVICE void Run(bool fetched) {
    if (!fetched) stream.Fetch();
    const int end = FirstUnits(args)[blockIdx.x + 1];
    for (int i = FirstUnits(args)[blockIdx.x]; i < end; ++i) {
      const AttentionUnit unit = UnitAt(args, i);
      // The previous unit no longer uses the queries, nor the stage that is fetched next.
      SyncThreads();
      if (unit.rows <= 8) {
        RunUnit<Narrow<1>>(unit);
      } else if (unit.rows <= 16) {
        RunUnit<Narrow<2>>(unit);
      } else {
        RunUnit<Wide>(unit);
      }
      if (unit.units == 1) continue;
      if (!IsLastOfItem(args, unit, reinterpret_cast<uint32_t*>(q))) continue;
      SyncThreads();
      // Uses a stage into which no tile is being copied.
      T* const ring = tiles.Free(stage);
      FoldRecords<RecordRing<kFoldThreads>, kFoldThreads, T>(
          args, unit, kHeadDim, {reinterpret_cast<float*>(q), kScratchFloats, ring});
    }
  }

  template <typename Shape>
  TLM_DEVICE void RunUnit(const AttentionUnit& unit) {
    State<Shape> state;
    state.Clear();
#pragma unroll
    for (int h = 0; h < Shape::kHalves; ++h) {
      positions[h] = PositionOf(args, unit, Shape::Row() + LaneRow(h));
    }
    const int first = FirstTileOfUnit(args, unit);
    if (first < unit.end) CopyQueries(unit);
    for (int tile = first; tile < unit.end; ++tile) {
      // Waits for this tile's K. Only its V may be in flight; for the unit's first tile, whose
      // queries were copied after it, only the next tile.
      if (tile > first) {
        CopyAsyncWait<1>();
        tiles.template Take<Shape::kIsNarrow>(stage, 0);
        SyncThreads();
      }
      stream.Fetch();
      if (tile == first) {
        CopyAsyncWait<2>();
        tiles.template Take<Shape::kIsNarrow>(stage, 0);
        SyncThreads();
      }
      if constexpr (Shape::kIsNarrow) {
        NarrowTile<Shape>(unit, tile, state);
      } else {
        WideTile(unit, tile, state);
      }
      stage ^= 1;
    }
    Finish<Shape>(unit, state);
  }

  // Copies the unit's queries; rows after them are zeros.
  TLM_DEVICE void CopyQueries(const AttentionUnit& unit) {
    constexpr int kPieces = kHeadDim / 8;
    const int rows = unit.rows <= 16 ? 16 : kRows;
#pragma unroll 2
    for (int i = static_cast<int>(threadIdx.x); i < rows * kPieces; i += kAttentionThreads) {
      const int row = i / kPieces;
      const int piece = i % kPieces;
      const bool exists = row < unit.rows;
      const T* const from = static_cast<const T*>(args.q) +
                            RowOffset(args, unit, exists ? row : 0, args.q_stride) + piece * 8;
      CopyAsync16(q + Swizzled<kHeadDim>::Offset(row, piece), from, exists);
    }
    CopyAsyncCommit();
  }

  template <int kHalves, int N>
  TLM_DEVICE void Hide(const AttentionUnit& unit, int tile, int first, float (&s)[N][2][4]) const {
    if (SeenByAll(args, unit, tile).All()) return;
    Seen seen[kHalves];
#pragma unroll
    for (int h = 0; h < kHalves; ++h) seen[h] = SeenOfPosition(args, positions[h], tile);
    HideKeys(seen, first, s);
  }

  TLM_DEVICE void WideTile(const AttentionUnit& unit, int tile, State<Wide>& state) const {
    const int row = Wide::Row();
    const bool works = row < unit.rows;
    uint32_t p[4][4];
    float max[2], min[2], sum[2];
    if (works) {
      float s[4][2][4];
      const auto keys = tiles.Keys(stage);
      Scores(RowFragments<kHeadDim>(q, row), keys, s);
      Hide<2>(unit, tile, 0, s);
      RowRange(s, max, min);
      const bool all_in_range = AllInRange(max, min, args.scale_log2);
      float parts[2][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float part[2];
        Weights<T>(s[i], max, args.scale_log2, all_in_range, p[i], part);
        parts[0][i] = part[0];
        parts[1][i] = part[1];
      }
      sum[0] = RowSum(parts[0]);
      sum[1] = RowSum(parts[1]);
    }
    CopyAsyncWait<2>();
    tiles.template Take<false>(stage, 1);
    SyncThreads();
    if (!works) return;
    const auto folding = Begin<Wide>(unit, tile, max, sum, state);
    const auto tile_values = tiles.Values(stage, Wide::First());
#pragma unroll
    for (int i = 0; i < kWide; i += kInFlight) {
      float values[kInFlight][2][4];
      WeighValues<T, 1>(p, tile_values, i, kWide, values);
      Fold<kInFlight>(folding, values, Wide::First() + i, 1, &state.values[i]);
    }
  }

  template <typename Shape>
  TLM_DEVICE void NarrowTile(const AttentionUnit& unit, int tile, State<Shape>& state) const {
    constexpr int kHalves = Shape::kHalves;
    const int warp = Warp();
    const int lane = LaneInWarp();
    float s[1][2][4];
    float max[kHalves], min[kHalves];
    auto keys = tiles.NarrowKeys(stage);
    Scores(RowFragments<kHeadDim>(q, 0), keys, s);
    keys.Mend(s);
    Hide<kHalves>(unit, tile, warp, s);
    RowRange(s, max, min);
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      if (lane % 4 == 0) maxima[4 * LaneRow(h) + warp] = max[h];
    }
    SyncThreads();
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      const Elements<4> others = LoadElements<4>(maxima + 4 * LaneRow(h));
#pragma unroll
      for (int w = 0; w < 4; ++w) max[h] = Larger(others.at[w], max[h]);
    }
    PassWeights(s[0], max, min);
    CopyAsyncWait<2>();
    tiles.template Take<Shape::kIsNarrow>(stage, 1);
    SyncThreads();
    uint32_t p[4][4];
    float parts[kHalves][4];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const Quad fragment = weights[kWarpLanes * w + lane];
#pragma unroll
      for (int i = 0; i < 4; ++i) p[w][i] = fragment.word[i];
      if constexpr (kHalves == 1) {
        parts[0][w] = FloatOfBits(fragment.word[1]);
      } else {
        const FloatPair pair = sums[kWarpLanes * w + lane];
        parts[0][w] = pair.a;
        parts[1][w] = pair.b;
      }
    }
    float sum[kHalves];
#pragma unroll
    for (int h = 0; h < kHalves; ++h) sum[h] = RowSum(parts[h]);
    const auto folding = Begin<Shape>(unit, tile, max, sum, state);
    float values[kNarrow][2][4];
    auto tile_values = tiles.NarrowValues(stage);
    // A number of groups that is equal for all warps is a compile-time constant.
    WeighValues<T, 4>(p, tile_values, 0, kColumns % 4 == 0 ? kColumns : kColumns - warp, values);
    tile_values.Mend(values);
    Fold<kNarrow>(folding, values, warp, 4, state.values);
  }

  // Passes the weights of a narrow warp's 16 keys, and its parts of their sums, to all warps, from
  // lane to equal lane, since all warps have the same fragment layout. Without a second half of
  // rows, a word of that half carries the sum.
  template <int kHalves>
  TLM_DEVICE void PassWeights(const float (&s)[2][4], const float (&max)[kHalves],
                              const float (&min)[kHalves]) const {
    uint32_t p[4];
    float part[kHalves];
    Weights<T>(s, max, args.scale_log2, AllInRange(max, min, args.scale_log2), p, part);
    if constexpr (kHalves == 1) {
      weights[threadIdx.x] = {p[0], FloatBits(part[0]), p[2], p[2]};
    } else {
      weights[threadIdx.x] = {p[0], p[1], p[2], p[3]};
      sums[threadIdx.x] = {part[0], part[1]};
    }
  }

  // The destination of a tile's values: the unit's state, or the tile's record.
  template <int kHalves>
  struct Folding {
    bool records;
    float add[kHalves];
    float* record[kHalves];  // records of the lane's rows; null: no such row
  };

  // Folds a tile's statistics and rescales the state's values, so that the tile's can be added.
  // Most tiles raise no row's maximum; then x * 1 is not computed.
  template <typename Shape>
  TLM_DEVICE Folding<Shape::kHalves> Begin(const AttentionUnit& unit, int tile,
                                           const float (&max)[Shape::kHalves],
                                           const float (&sum)[Shape::kHalves],
                                           State<Shape>& state) const {
    constexpr int kHalves = Shape::kHalves;
    const int row = Shape::Row();
    Folding<kHalves> folding{.records = !IsPrefix(unit), .add = {}, .record = {}};
    float keep[kHalves];
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      keep[h] = 1.0f;
      if (!folding.records) {
        const FoldFactors factors =
            FoldStats(max[h], sum[h], args.scale_log2, state.max[h], state.sum[h]);
        keep[h] = factors.keep;
        folding.add[h] = factors.add;
      } else if (row + LaneRow(h) < unit.rows) {
        folding.record[h] = WriteStats(TileRecordRow(unit, tile, row + LaneRow(h)), max[h], sum[h]);
      }
    }
    bool kept = true;
#pragma unroll
    for (int h = 0; h < kHalves; ++h) kept = kept && keep[h] == 1.0f;
    if (Ballot(kept) != 0xffffffffu) {
#pragma unroll
      for (int i = 0; i < Shape::kHeld; ++i) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
#pragma unroll
          for (int e = 0; e < 2 * kHalves; ++e) state.values[i][j][e] *= keep[e / 2];
        }
      }
    }
    return folding;
  }

  // The rest of FoldValue; Begin has computed its product.
  template <int N, int kHalves>
  TLM_DEVICE void Fold(const Folding<kHalves>& folding, const float (&values)[N][2][4], int first,
                       int stride, float (*state)[2][2 * kHalves]) const {
    if (folding.records) return WriteValues(folding.record, values, first, stride);
#pragma unroll
    for (int i = 0; i < N; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int e = 0; e < 2 * kHalves; ++e) {
          state[i][j][e] = Fma(values[i][j][e], folding.add[e / 2], state[i][j][e]);
        }
      }
    }
  }

  // Returns the values of a partial row; one of the lanes that hold them writes its statistics.
  TLM_DEVICE float* WriteStats(int64_t record_row, float max, float sum) const {
    if (LaneInWarp() % 4 == 0) {
      *reinterpret_cast<FloatPair*>(args.partial_stats + 2 * record_row) = {max, sum};
    }
    return args.partial_values + record_row * kHeadDim;
  }
  template <int kHalves, int N, int kElements>
  TLM_DEVICE void WriteValues(float* const (&record)[kHalves],
                              const float (&values)[N][2][kElements], int first, int stride) const {
    ForPairs<kHeadDim, kHalves>(values, first, stride, [&](int half, int column, float a, float b) {
      if (record[half] != nullptr) {
        *reinterpret_cast<FloatPair*>(record[half] + column) = {a, b};
      }
    });
  }

  // Writes the unit's rows: to the output if the unit is the complete item, else to record 0.
  template <typename Shape>
  TLM_DEVICE void Finish(const AttentionUnit& unit, const State<Shape>& state) const {
    const int row = Shape::Row();
    if (!IsPrefix(unit)) return;
    if (unit.units == 1) return WriteOutput<Shape>(unit, state);
    float* record[Shape::kHalves] = {};
#pragma unroll
    for (int h = 0; h < Shape::kHalves; ++h) {
      if (row + LaneRow(h) >= unit.rows) continue;
      record[h] = WriteStats(PrefixRecordRow(unit, row + LaneRow(h)), state.max[h], state.sum[h]);
    }
    WriteValues(record, state.values, Shape::First(), Shape::kStride);
  }

  template <typename Shape>
  TLM_DEVICE void WriteOutput(const AttentionUnit& unit, const State<Shape>& state) const {
    const int row = Shape::Row();
    float reciprocal[Shape::kHalves];
    T* out[Shape::kHalves] = {};
#pragma unroll
    for (int h = 0; h < Shape::kHalves; ++h) {
      reciprocal[h] = 1.0f / state.sum[h];
      if (row + LaneRow(h) >= unit.rows) continue;
      out[h] = static_cast<T*>(args.out) + RowOffset(args, unit, row + LaneRow(h), args.out_stride);
    }
    ForPairs<kHeadDim, Shape::kHalves>(
        state.values, Shape::First(), Shape::kStride, [&](int half, int column, float a, float b) {
          if (out[half] == nullptr) return;
          *reinterpret_cast<uint32_t*>(out[half] + column) =
              PackPair<T>(a * reciprocal[half], b * reciprocal[half]);
        });
  }
};

template <int kHeadDim, typename T, typename Tiles>
TLM_DEVICE void Attend(const AttentionKernelArgs& args) {
  LetNextStart();
  if (HasNothingToDo(args)) return;
  // Begins with the first tile while earlier kernels still run.
  MmaAttention<kHeadDim, T, Tiles> attention(args, SharedMemory<T>());
  const bool fetched = attention.stream.FetchStored();
  WaitForPrevious();
  attention.Run(fetched);
}

// A multiprocessor runs two blocks (attention_plan.h).
template <typename T, int kHeadDim>
TLM_KERNEL __launch_bounds__(kAttentionThreads, 2) AttendMma(const AttentionKernelArgs args) {
  Attend<kHeadDim, T, PlainTiles<kHeadDim, T>>(args);
}
// For a cache in 8 bits.
template <typename T, int kHeadDim>
TLM_KERNEL __launch_bounds__(kAttentionThreads, 2) AttendMmaFp8(const AttentionKernelArgs args) {
  Attend<kHeadDim, T, Fp8Tiles<kHeadDim, T>>(args);
}

}  // namespace tlm::simt

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_ATTENTION_MMA_H_
