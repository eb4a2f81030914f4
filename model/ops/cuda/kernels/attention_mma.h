// Attention on the tensor cores; see attention.h. Included by attention_mma.cu only.
//
// Map of the kernel, AttendMma<T, head_dim>; figures are of head_dim 128, those of the machine code
// for sm_90a (tests/gpu/static checks them), times estimates.
//
//   grid       persistent: two blocks a multiprocessor, each with a list of units
//              (attention_work.h)
//   block      128 threads, 4 warps, 207 registers; 75 KiB of code: the loops over tiles of wide
//              and of narrow units
//   shared     80 KiB. 64: stages[2] of a K and a V tile, [64][head_dim] each, in pieces of 16
//              bytes swizzled by row (attention_tiles.h). 16: q [64][head_dim], of which narrow
//              units take 16 rows, and P, maxima and sums the rest
//   loads      cp.async of 16 bytes, two groups a tile (K, V), one tile ahead, over the borders of
//              units: 32 to 64 KiB of a block on their way; block ids a tile ahead of that
//   barriers   wide units 2 a tile (K is here, V is here), narrow ones 4; a unit has 2 more
//
//   block  plan, block id | wait for the kernel before (PDL) | K0 V0 | q, K1 V1 | tiles ..
//   tile   wait K | fetch next | S = q K^T | hide, max | 2^x, sum | wait V | rescale | P V, fold
//   unit   epilogue: O / l to the output, or the state to record 0; split items: ticket, and the
//          last unit to be done folds the records (FoldRecords), through the stage that is free
//
// Of a cache in 8 bits, AttendMmaFp8<T, head_dim>: the stages are of bytes, beside one K and one V
// tile in 16 bits (Fp8Tiles), and 256 bytes more hold the scales; 101 KiB of code.
//
//   tile   wait K, widen K | fetch next | S .. | wait V, widen V | rescale | P V, fold
//
// A warp's S has 16 query rows, its P V 16 rows and columns by 16:
//
//   wide, up to 64 rows     warp w has rows [16 w, 16 w + 16), all keys and all columns; of heads
//                           of 256 columns warps w and w + 2 share rows [16 w, 16 w + 16), w < 2:
//                           each computes their weights, for one half of the columns
//   narrow, up to 16 rows   warp w has all rows, for S and the softmax keys [16 w, 16 w + 16), for
//                           P V columns [16 w, 16 w + 16) of every 64; maxima, sums and P pass
//                           through shared memory
//
// Each element is the same sequence of operations in both: S over head_dim by 16 from zero; a row's
// sum over a lane's four weights of every 16 keys, then over the four 16s, then over four lanes;
// P V over the four 16s from zero.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_MMA_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_MMA_H_

#include "model/ops/cuda/kernels/attention_device.h"
#include "model/ops/cuda/kernels/attention_tiles.h"

namespace tlm::simt {

// --- What a warp computes of a key tile, in the layouts of MultiplyAdd's fragments (simt.h): of 16
// query rows a lane holds two, one in each half. ---

// s[i] = q k^T of rows [row, row + 16) and keys [16 (first + i), ..) as two tiles of 8 keys.
template <int kHeadDim, int N, typename T>
TLM_DEVICE void Scores(const T* q, int row, const T* keys, int first, float (&s)[N][2][4]) {
  const auto q_fragments = RowFragments<kHeadDim>(q, row);
  const auto k_fragments = ColumnFragments<kHeadDim>(keys, 16 * first);
#pragma unroll
  for (int i = 0; i < N; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) s[i][0][e] = s[i][1][e] = 0.0f;
  }
#pragma unroll
  for (int step = 0; step < kHeadDim / 16; ++step) {
    uint32_t a[4];
    LoadMatrices(a, q_fragments.At(0, 2 * step));
#pragma unroll
    for (int i = 0; i < N; ++i) {
      uint32_t b[4];
      LoadMatrices(b, k_fragments.At(16 * i, 2 * step));
      MultiplyAdd<T>(s[i][0], a, {b[0], b[1]});
      MultiplyAdd<T>(s[i][1], a, {b[2], b[3]});
    }
  }
}

// Sets the scores of keys that a row does not see; seen[h] is of the lane's row in half h.
template <int N>
TLM_DEVICE void HideKeys(const Seen (&seen)[2], int first, float (&s)[N][2][4]) {
  const int pair = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int i = 0; i < N; ++i) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int key = 16 * (first + i) + 8 * j + 2 * pair + e % 2;
        if (!seen[e / 2](key)) s[i][j][e] = kLowest;
      }
    }
  }
}

// The largest of a row's scores, of the lane's row in either half; and the least of those that the
// lane holds, or NaN.
template <int N>
TLM_DEVICE void RowRange(const float (&s)[N][2][4], float (&max)[2], float (&min)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    max[h] = kLowest;
    min[h] = -kLowest;
#pragma unroll
    for (int i = 0; i < N; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int e = 2 * h; e < 2 * h + 2; ++e) {
          max[h] = Larger(s[i][j][e], max[h]);
          min[h] = SmallerOrNan(s[i][j][e], min[h]);
        }
      }
    }
    max[h] = Larger(ShuffleXor(max[h], 1), max[h]);
    max[h] = Larger(ShuffleXor(max[h], 2), max[h]);
  }
}

// Whether all weights of the warp's scores are ordinary: no key is hidden, no score is not finite,
// none lies so far below its row's largest that its weight is 0. Tiles on the diagonal and at a
// window's border aside, nearly always. WeightExponent rises with the score: the least decides.
TLM_DEVICE bool AllInRange(const float (&max)[2], const float (&min)[2], float scale_log2) {
  const bool in_range = WeightExponent(min[0], max[0], scale_log2) >= -125.0f &&
                        WeightExponent(min[1], max[1], scale_log2) >= -125.0f;
  return Ballot(in_range) == 0xffffffffu;
}

// The weights of 16 keys as an A fragment, and a lane's part of their sum.
template <typename T>
TLM_DEVICE void Weights(const float (&s)[2][4], const float (&max)[2], float scale_log2,
                        bool all_in_range, uint32_t (&p)[4], float (&sum)[2]) {
  float x[2][4], w[2][4];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      x[h][e] = WeightExponent(s[e / 2][2 * h + e % 2], max[h], scale_log2);
      w[h][e] = Exp2InRange(x[h][e]);
    }
  }
  if (!all_in_range) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int e = 0; e < 4; ++e) w[h][e] = Exp2Anywhere(x[h][e], w[h][e]);
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    p[h] = PackPair<T>(w[h][0], w[h][1]);
    p[h + 2] = PackPair<T>(w[h][2], w[h][3]);
    sum[h] = (w[h][0] + w[h][1]) + (w[h][2] + w[h][3]);
  }
}

TLM_DEVICE float RowSum(const float (&parts)[4]) {
  float sum = ((parts[0] + parts[1]) + parts[2]) + parts[3];
  sum += ShuffleXor(sum, 1);
  return sum + ShuffleXor(sum, 2);
}

// out[i] = P V of columns [16 (begin + i kStride), ..), counted from where `values` starts, as two
// tiles of 8 columns. There are 16 * `columns` from there on: the same for a whole warp.
template <int kHeadDim, int N, int kStride, typename T>
TLM_DEVICE void WeighValues(const uint32_t (&p)[4][4], const LaneMatrices<kHeadDim, T>& values,
                            int begin, int columns, float (&out)[N][2][4]) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) out[i][0][e] = out[i][1][e] = 0.0f;
  }
#pragma unroll
  for (int step = 0; step < 4; ++step) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (begin + i * kStride >= columns) continue;
      uint32_t b[4];
      LoadMatricesTransposed(b, values.At(16 * step, 2 * (begin + i * kStride)));
      MultiplyAdd<T>(out[i][0], p[step], {b[0], b[1]});
      MultiplyAdd<T>(out[i][1], p[step], {b[2], b[3]});
    }
  }
}

// --- The kernel. ---

// What a warp holds of 16 query rows: of the lane's two rows, and of columns [16 (first + i
// stride), ..), i < N, as P V gives them.
template <int N>
struct RowState {
  float max[2];
  float sum[2];
  float values[N][2][4];

  TLM_DEVICE void Clear() {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      max[h] = kLowest;
      sum[h] = 0.0f;
    }
#pragma unroll
    for (int i = 0; i < N; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) values[i][0][e] = values[i][1][e] = 0.0f;
    }
  }
};

// Calls visit(half, column, a, b) for every two adjacent elements of P V that the lane holds.
template <int kHeadDim, int N, typename Visit>
TLM_DEVICE void ForPairs(const float (&values)[N][2][4], int first, int stride, Visit visit) {
  const int pair = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (first + i * stride >= kHeadDim / 16) continue;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int column = 16 * (first + i * stride) + 8 * j + 2 * pair;
      visit(0, column, values[i][j][0], values[i][j][1]);
      visit(1, column, values[i][j][2], values[i][j][3]);
    }
  }
}

struct alignas(8) FloatPair {
  float a;
  float b;
};

template <int kHeadDim, typename T, typename Tiles>
struct MmaAttention {
  static constexpr int kTileElements = kAttentionTile * kHeadDim;
  // 16s of columns: of a head, of a warp's share in narrow units, and as many as a wide warp has
  // in flight.
  static constexpr int kColumns = kHeadDim / 16;
  static constexpr int kNarrow = (kColumns + 3) / 4;
  static constexpr int kInFlight = kColumns % 2 == 0 ? 2 : 1;
  // Of wide units: rows, and the warps that share 16 of them.
  static constexpr int kRows = kHeadDim <= 128 ? 64 : 32;
  static constexpr int kSharing = kAttentionMaxRows / kRows;
  static constexpr int kWide = kColumns / kSharing;
  static_assert(kNarrow != kWide && kRows == MmaAttentionRows(kHeadDim));

  const AttentionKernelArgs& args;
  const Tiles tiles;
  T* const q;           // [kRows, head_dim], or in narrow units [16, head_dim] and what follows
  T* const weights;     // [16, 64]
  float* const maxima;  // [4 warps][16 rows]
  float* const sums;    // [4 warps][16 rows][4 lanes]
  TileStream<Tiles> stream;
  int stage = 0;
  int positions[2] = {0, 0};  // of the lane's rows of the unit

  static constexpr int kScratchFloats = kRows * kHeadDim / 2;
  // As many as a stage holds the rings of.
  static constexpr int kFoldThreads = kHeadDim < kAttentionThreads ? kHeadDim : kAttentionThreads;
  static_assert(RecordRing<kFoldThreads>::kBytes <= 2 * kTileElements * sizeof(T));
  static_assert(16 * kHeadDim + 16 * 64 + 2 * (4 * 16 + 4 * 16 * 4) <= kRows * kHeadDim);

  TLM_DEVICE MmaAttention(const AttentionKernelArgs& a, T* shared)
      : args(a),
        tiles(shared),
        q(shared + 4 * kTileElements),
        weights(q + 16 * kHeadDim),
        maxima(reinterpret_cast<float*>(weights + 16 * 64)),
        sums(maxima + 4 * 16),
        stream(a, tiles) {}

  static TLM_DEVICE int Warp() { return static_cast<int>(threadIdx.x) / kWarpLanes; }
  // A wide warp's first row and first 16 columns.
  static TLM_DEVICE int WideRow() { return 16 * (Warp() % (4 / kSharing)); }
  static TLM_DEVICE int WideColumns() {
    return kSharing == 1 ? 0 : Warp() / (4 / kSharing) * kWide;
  }
  // The lane's row in either half of 16.
  static TLM_DEVICE int LaneRow(int half) { return LaneInWarp() / 4 + 8 * half; }

  TLM_DEVICE void Run() {
    stream.Fetch();
    const int end = FirstUnits(args)[blockIdx.x + 1];
    for (int i = FirstUnits(args)[blockIdx.x]; i < end; ++i) {
      const AttentionUnit unit = UnitAt(args, i);
      // The unit before has done with the queries, and with the stage that is fetched next.
      SyncThreads();
      if (unit.rows <= 16) {
        RunUnit<kNarrow>(unit);
      } else {
        RunUnit<kWide>(unit);
      }
      if (unit.units == 1) continue;
      if (!IsLastOfItem(args, unit, reinterpret_cast<uint32_t*>(q))) continue;
      SyncThreads();
      // Where no tile is on its way to.
      T* const ring = tiles.Free(stage);
      FoldRecords<RecordRing<kFoldThreads>, kFoldThreads, T>(
          args, unit, kHeadDim, {reinterpret_cast<float*>(q), kScratchFloats, ring});
    }
  }

  template <int N>
  TLM_DEVICE void RunUnit(const AttentionUnit& unit) {
    RowState<N> state;
    state.Clear();
    const int row = N == kNarrow ? 0 : WideRow();
#pragma unroll
    for (int h = 0; h < 2; ++h) positions[h] = PositionOf(args, unit, row + LaneRow(h));
    const int first = FirstTileOfUnit(args, unit);
    if (first < unit.end) CopyQueries(unit);
    for (int tile = first; tile < unit.end; ++tile) {
      // K of this tile arrives: all but its V, and with the unit's first one, whose queries were
      // begun after it, all but the next tile.
      if (tile > first) {
        CopyAsyncWait<1>();
        tiles.Take(stage, 0);
        SyncThreads();
      }
      stream.Fetch();
      if (tile == first) {
        CopyAsyncWait<2>();
        tiles.Take(stage, 0);
        SyncThreads();
      }
      const T* const keys = tiles.Keys(stage);
      if constexpr (N == kNarrow) {
        NarrowTile(unit, tile, keys, state);
      } else {
        WideTile(unit, tile, keys, state);
      }
      stage ^= 1;
    }
    Finish(unit, state);
  }

  // Rows past the unit's are zeros.
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

  template <int N>
  TLM_DEVICE void Hide(const AttentionUnit& unit, int tile, int first, float (&s)[N][2][4]) const {
    if (SeenByAll(args, unit, tile).All()) return;
    const Seen seen[2] = {SeenOfPosition(args, positions[0], tile),
                          SeenOfPosition(args, positions[1], tile)};
    HideKeys(seen, first, s);
  }

  TLM_DEVICE void WideTile(const AttentionUnit& unit, int tile, const T* keys,
                           RowState<kWide>& state) const {
    const int row = WideRow();
    const bool works = row < unit.rows;
    uint32_t p[4][4];
    float max[2], min[2], sum[2];
    if (works) {
      float s[4][2][4];
      Scores<kHeadDim>(q, row, keys, 0, s);
      Hide(unit, tile, 0, s);
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
    tiles.Take(stage, 1);
    SyncThreads();
    if (!works) return;
    const Folding folding = Begin(unit, tile, row, max, sum, state);
    const auto v_fragments = RowFragments<kHeadDim>(keys + kTileElements, 0, 16 * WideColumns());
#pragma unroll
    for (int i = 0; i < kWide; i += kInFlight) {
      float values[kInFlight][2][4];
      WeighValues<kHeadDim, kInFlight, 1>(p, v_fragments, i, kWide, values);
      Fold<kInFlight>(folding, values, WideColumns() + i, 1, &state.values[i]);
    }
  }

  TLM_DEVICE void NarrowTile(const AttentionUnit& unit, int tile, const T* keys,
                             RowState<kNarrow>& state) const {
    const int warp = Warp();
    const int lane = LaneInWarp();
    float s[1][2][4];
    float max[2], min[2];
    Scores<kHeadDim>(q, 0, keys, warp, s);
    Hide(unit, tile, warp, s);
    RowRange(s, max, min);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (lane % 4 == 0) maxima[16 * warp + LaneRow(h)] = max[h];
    }
    SyncThreads();
    uint32_t p[4][4];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int w = 0; w < 4; ++w) max[h] = Larger(maxima[16 * w + LaneRow(h)], max[h]);
    }
    float part[2];
    Weights<T>(s[0], max, args.scale_log2, AllInRange(max, min, args.scale_log2), p[0], part);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      sums[(16 * warp + LaneRow(h)) * 4 + lane % 4] = part[h];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        T* const piece = weights + Swizzled<64>::Offset(LaneRow(h), 2 * warp + j);
        reinterpret_cast<uint32_t*>(piece)[lane % 4] = p[0][h + 2 * j];
      }
    }
    CopyAsyncWait<2>();
    tiles.Take(stage, 1);
    SyncThreads();
    float sum[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float parts[4];
#pragma unroll
      for (int w = 0; w < 4; ++w) parts[w] = sums[(16 * w + LaneRow(h)) * 4 + lane % 4];
      sum[h] = RowSum(parts);
    }
    const auto fragments = RowFragments<64>(weights, 0);
#pragma unroll
    for (int i = 0; i < 4; ++i) LoadMatrices(p[i], fragments.At(0, 2 * i));
    const Folding folding = Begin(unit, tile, 0, max, sum, state);
    float values[kNarrow][2][4];
    WeighValues<kHeadDim, kNarrow, 4>(p, RowFragments<kHeadDim>(keys + kTileElements, 0, 16 * warp),
                                      0, kColumns - warp, values);
    Fold<kNarrow>(folding, values, warp, 4, state.values);
  }

  // Where a tile's values go: upon the unit's state, or into its record.
  struct Folding {
    bool records;
    float add[2];
    float* record[2];  // of the lane's rows; null: no such row
  };

  // Takes a tile's statistics; the state's values are then ready for the tile's to be added. Most
  // tiles raise no row's maximum: x * 1 is not computed.
  template <int N>
  TLM_DEVICE Folding Begin(const AttentionUnit& unit, int tile, int row, const float (&max)[2],
                           const float (&sum)[2], RowState<N>& state) const {
    Folding folding{.records = !IsPrefix(unit), .add = {}, .record = {nullptr, nullptr}};
    float keep[2] = {1.0f, 1.0f};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (!folding.records) {
        const FoldFactors factors =
            FoldStats(max[h], sum[h], args.scale_log2, state.max[h], state.sum[h]);
        keep[h] = factors.keep;
        folding.add[h] = factors.add;
      } else if (row + LaneRow(h) < unit.rows) {
        folding.record[h] = WriteStats(TileRecordRow(unit, tile, row + LaneRow(h)), max[h], sum[h]);
      }
    }
    if (Ballot(keep[0] == 1.0f && keep[1] == 1.0f) != 0xffffffffu) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
#pragma unroll
          for (int e = 0; e < 4; ++e) state.values[i][j][e] *= keep[e / 2];
        }
      }
    }
    return folding;
  }

  // FoldValue, of which Begin has done the product.
  template <int N>
  TLM_DEVICE void Fold(const Folding& folding, const float (&values)[N][2][4], int first,
                       int stride, float (*state)[2][4]) const {
    if (folding.records) return WriteValues<N>(folding.record, values, first, stride);
#pragma unroll
    for (int i = 0; i < N; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          state[i][j][e] = Fma(values[i][j][e], folding.add[e / 2], state[i][j][e]);
        }
      }
    }
  }

  // Returns the values of a partial row, whose statistics one of the lanes that hold them writes.
  TLM_DEVICE float* WriteStats(int64_t record_row, float max, float sum) const {
    if (LaneInWarp() % 4 == 0) {
      *reinterpret_cast<FloatPair*>(args.partial_stats + 2 * record_row) = {max, sum};
    }
    return args.partial_values + record_row * kHeadDim;
  }
  template <int N>
  TLM_DEVICE void WriteValues(float* const (&record)[2], const float (&values)[N][2][4], int first,
                              int stride) const {
    ForPairs<kHeadDim>(values, first, stride, [&](int half, int column, float a, float b) {
      if (record[half] != nullptr) {
        *reinterpret_cast<FloatPair*>(record[half] + column) = {a, b};
      }
    });
  }

  // Writes the unit's rows: of the output where the unit is the whole item, else of record 0.
  template <int N>
  TLM_DEVICE void Finish(const AttentionUnit& unit, const RowState<N>& state) const {
    constexpr bool kIsNarrow = N == kNarrow;
    const int row = kIsNarrow ? 0 : WideRow();
    const int first = kIsNarrow ? Warp() : WideColumns();
    const int stride = kIsNarrow ? 4 : 1;
    if (!IsPrefix(unit)) return;
    if (unit.units == 1) return WriteOutput(unit, state, row, first, stride);
    float* record[2] = {nullptr, nullptr};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (row + LaneRow(h) >= unit.rows) continue;
      record[h] = WriteStats(PrefixRecordRow(unit, row + LaneRow(h)), state.max[h], state.sum[h]);
    }
    WriteValues<N>(record, state.values, first, stride);
  }

  template <int N>
  TLM_DEVICE void WriteOutput(const AttentionUnit& unit, const RowState<N>& state, int row,
                              int first, int stride) const {
    const float reciprocal[2] = {1.0f / state.sum[0], 1.0f / state.sum[1]};
    T* out[2] = {nullptr, nullptr};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (row + LaneRow(h) >= unit.rows) continue;
      out[h] = static_cast<T*>(args.out) + RowOffset(args, unit, row + LaneRow(h), args.out_stride);
    }
    ForPairs<kHeadDim>(state.values, first, stride, [&](int half, int column, float a, float b) {
      if (out[half] == nullptr) return;
      *reinterpret_cast<uint32_t*>(out[half] + column) =
          PackPair<T>(a * reciprocal[half], b * reciprocal[half]);
    });
  }
};

template <int kHeadDim, typename T, typename Tiles>
TLM_DEVICE void Attend(const AttentionKernelArgs& args) {
  // Finds the first tile, while the kernel before still runs.
  MmaAttention<kHeadDim, T, Tiles> attention(args, SharedMemory<T>());
  WaitForPrevious();
  LetNextStart();
  attention.Run();
}

template <typename T, int kHeadDim>
TLM_KERNEL __launch_bounds__(kAttentionThreads) AttendMma(const AttentionKernelArgs args) {
  Attend<kHeadDim, T, PlainTiles<kHeadDim, T>>(args);
}
// Of a cache in 8 bits. Two blocks are what a multiprocessor has (attention_plan.h).
template <typename T, int kHeadDim>
TLM_KERNEL __launch_bounds__(kAttentionThreads, 2) AttendMmaFp8(const AttentionKernelArgs args) {
  Attend<kHeadDim, T, Fp8Tiles<kHeadDim, T>>(args);
}

}  // namespace tlm::simt

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_MMA_H_
