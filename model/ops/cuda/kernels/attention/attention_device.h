// Code that both attention kernels share: units, the fold, records. Included by their files only.
// attention.h has the formulas, attention_work.h the units. Blocks have kAttentionThreads threads.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_ATTENTION_DEVICE_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_ATTENTION_DEVICE_H_

#include "model/ops/cuda/kernels/attention/attention.h"
#include "model/ops/cuda/kernels/attention/attention_work.h"
#include "model/ops/cuda/kernels/math.h"
#include "model/ops/cuda/kernels/simt.h"

namespace tlm {

inline constexpr int kAttentionThreads = 128;

// LoadAttention and LaunchAttention without tensor cores.
cudaError_t LoadSimtAttention(DType activations, int64_t head_dim, bool fp8);
cudaError_t LaunchSimtAttention(const AttentionArgs& args, DType activations, cudaStream_t stream);

struct AttentionKernelArgs : AttentionArgs {
  const AttentionUnit* units;
  float scale_log2;

  explicit AttentionKernelArgs(const AttentionArgs& args)
      : AttentionArgs(args),
        units(reinterpret_cast<const AttentionUnit*>(static_cast<const char*>(args.work) +
                                                     AttentionUnitsOffset(args.blocks))),
        scale_log2(args.scale * 1.44269504f) {}
};

namespace simt {

constexpr float kLowest = -__builtin_inff();

TLM_DEVICE int LargerInt(int a, int b) { return a > b ? a : b; }

// --- The fold. ---

struct FoldFactors {
  float keep;
  float add;
};

// Returns the factors that fold a tile's sum and values into those with the maximum `max`: they
// depend on nothing else. If the row sees no key of the tile, the tile has sum 0 and values +0, and
// the fold changes no bit, not even the sign of a zero: x * 1 + 0 * -0. One of the two powers is
// always 2^0, except at maxima of +infinity, where the tile's own sum and values are NaN.
TLM_DEVICE FoldFactors FactorsUpon(float max, float tile_max, float tile_sum, float scale_log2) {
  const bool higher = tile_max > max;
  const float power = Exp2OfNegative((higher ? max - tile_max : tile_max - max) * scale_log2);
  if (tile_sum == 0.0f) return {1.0f, -0.0f};
  return higher ? FoldFactors{power, 1.0f} : FoldFactors{1.0f, power};
}
TLM_DEVICE float FoldValue(float tile, FoldFactors factors, float value) {
  return Fma(tile, factors.add, value * factors.keep);
}
// Folds a tile's (max, sum) into the running one and returns the factors for its values.
TLM_DEVICE FoldFactors FoldStats(float tile_max, float tile_sum, float scale_log2, float& max,
                                 float& sum) {
  const FoldFactors factors = FactorsUpon(max, tile_max, tile_sum, scale_log2);
  sum = FoldValue(tile_sum, factors, sum);
  if (tile_sum != 0.0f) max = Larger(tile_max, max);
  return factors;
}

// The exponent of a score's weight, which increases with the score; `max` is the tile's maximum, or
// -infinity if the row sees none of its keys.
TLM_DEVICE float WeightExponent(float score, float max, float scale_log2) {
  return (score - (max == kLowest ? 0.0f : max)) * scale_log2;
}
TLM_DEVICE float Weight(float score, float max, float scale_log2) {
  return Exp2OfNegative(WeightExponent(score, max, scale_log2));
}

// --- Units. ---

TLM_DEVICE const int32_t* FirstUnits(const AttentionKernelArgs& args) {
  return static_cast<const int32_t*>(args.work);
}
TLM_DEVICE const AttentionUnit& UnitAt(const AttentionKernelArgs& args, int32_t unit) {
  return args.units[unit];
}

// A block without units makes room for the next kernel's blocks at once. Block 0 waits for the
// previous kernel, so that this kernel ends after it.
TLM_DEVICE bool HasNothingToDo(const AttentionKernelArgs& args) {
  return blockIdx.x != 0 && FirstUnits(args)[blockIdx.x] == FirstUnits(args)[blockIdx.x + 1];
}

// Returns the first position that a token at `position` sees.
TLM_DEVICE int FirstSeen(const AttentionKernelArgs& args, int position) {
  if (args.window <= 0 || position + 1 <= args.window) return 0;
  return static_cast<int>(position + 1 - args.window);
}
TLM_DEVICE int PositionOf(const AttentionKernelArgs& args, const AttentionUnit& unit, int row) {
  return unit.position + (unit.head + row) / args.group;
}
// Returns the first key tile that any row of the unit's item sees. The work may begin before it.
TLM_DEVICE int FirstTile(const AttentionKernelArgs& args, const AttentionUnit& unit) {
  return FirstSeen(args, unit.position) / kAttentionTile;
}
TLM_DEVICE int FirstTileOfUnit(const AttentionKernelArgs& args, const AttentionUnit& unit) {
  return LargerInt(unit.begin, FirstTile(args, unit));
}

// Returns the offset of element 0 of a query row in q or out.
TLM_DEVICE int64_t RowOffset(const AttentionKernelArgs& args, const AttentionUnit& unit, int row,
                             int64_t stride) {
  const int64_t token = unit.token + (unit.head + row) / args.group;
  const int64_t head = unit.kv_head * args.group + (unit.head + row) % args.group;
  return token * stride + head * args.head_dim;
}

// Keys [first, last] of a tile are visible. Both count from the tile's beginning and may be outside
// it.
struct Seen {
  int first;
  int last;
  TLM_DEVICE bool operator()(int key) const { return key >= first && key <= last; }
  TLM_DEVICE bool All() const { return first <= 0 && last >= kAttentionTile - 1; }
};
TLM_DEVICE Seen SeenOfPosition(const AttentionKernelArgs& args, int position, int tile) {
  return {FirstSeen(args, position) - tile * kAttentionTile, position - tile * kAttentionTile};
}
// Keys that any row of the unit sees.
TLM_DEVICE Seen SeenByAny(const AttentionKernelArgs& args, const AttentionUnit& unit, int tile) {
  const int base = tile * kAttentionTile;
  return {FirstSeen(args, unit.position) - base, unit.last_position - base};
}
// Keys that every row of the unit sees.
TLM_DEVICE Seen SeenByAll(const AttentionKernelArgs& args, const AttentionUnit& unit, int tile) {
  const int base = tile * kAttentionTile;
  return {FirstSeen(args, unit.last_position) - base, unit.position - base};
}

// --- Records. ---

// The partial row of a query row in record 0, or in the record of a tile outside the prefix.
TLM_DEVICE int64_t PrefixRecordRow(const AttentionUnit& unit, int row) {
  return unit.partial_row + row;
}
TLM_DEVICE int64_t TileRecordRow(const AttentionUnit& unit, int tile, int row) {
  return unit.partial_row + int64_t{1 + tile - unit.prefix_end} * unit.rows + row;
}
TLM_DEVICE bool IsPrefix(const AttentionUnit& unit) { return unit.end <= unit.prefix_end; }

// All threads call this after storing the unit's records. Returns whether all other units of the
// item are done, too; their records are then visible. `scratch` is shared memory without another
// use meanwhile.
TLM_DEVICE bool IsLastOfItem(const AttentionKernelArgs& args, const AttentionUnit& unit,
                             uint32_t* scratch) {
  SyncThreads();
  if (threadIdx.x == 0) {
    // The barrier has also ordered the other threads' earlier writes.
    FenceDevice();
    uint32_t* const ticket = args.tickets + unit.ticket;
    const bool last = AtomicAdd(ticket, 1) + 1 == static_cast<uint32_t>(unit.units);
    // Resets the ticket for the next launch.
    if (last) *ticket = 0;
    FenceDevice();
    *scratch = last;
  }
  SyncThreads();
  return *scratch != 0;
}

// A record's part in the fold of a row; {1, -0, 0} without a record.
struct alignas(16) FoldStep {
  float keep;
  float add;
  float sum;
  float unused;
};

// Elements that a thread folds together, or a record's (max, sum).
template <int kWidth>
struct alignas(4 * kWidth) Elements {
  float at[kWidth];
};
template <int kWidth>
TLM_DEVICE Elements<kWidth> LoadElements(const float* from) {
  return *reinterpret_cast<const Elements<kWidth>*>(from);
}

// A thread's state in the fold of a row's records.
template <int kWidth>
struct FoldState {
  Elements<kWidth> values;
  float sum;

  TLM_DEVICE void Fold(const Elements<kWidth>& tile, const FoldStep& step) {
    const FoldFactors factors{step.keep, step.add};
    sum = FoldValue(step.sum, factors, sum);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) values.at[i] = FoldValue(tile.at[i], factors, values.at[i]);
  }
};

// Brings a thread's parts of an item's records, `stride` floats apart, through shared memory: 12 to
// 16 of the 16-byte copies are in flight at any time, and take no registers.
template <int kThreads>
class RecordRing {
 public:
  static constexpr int kWidth = 4;
  static constexpr int kSlots = 16;  // per thread
  static constexpr size_t kBytes = size_t{kSlots} * kThreads * sizeof(Elements<kWidth>);

  // For threads below kThreads. `ring` is shared memory of kBytes, 16-byte aligned.
  TLM_DEVICE explicit RecordRing(void* ring)
      : slots_(static_cast<Elements<kWidth>*>(ring) + threadIdx.x) {}

  // Begins to copy the parts of `tiles` records.
  TLM_DEVICE void Begin(const float* first, int stride, int tiles) {
    next_ = first;
    stride_ = stride;
    tiles_ = tiles;
#pragma unroll 1
    for (int tile = 0; tile < kSlots; tile += kGroup) Copy(tile);
  }
  // Folds these parts.
  TLM_DEVICE void Fold(const FoldStep* steps, FoldState<kWidth>& state) {
#pragma unroll 1
    for (int tile = 0; tile < tiles_; tile += kGroup) {
      CopyAsyncWait<kSlots / kGroup - 1>();
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        if (tile + i < tiles_) state.Fold(Slot(tile)[i * kThreads], steps[tile + i]);
      }
      Copy(tile + kSlots);
    }
    CopyAsyncWait<0>();  // the slots after the last tile become zeros
  }

 private:
  static constexpr int kGroup = 4;

  TLM_DEVICE Elements<kWidth>* Slot(int tile) const { return slots_ + tile % kSlots * kThreads; }
  // Copies one group; an empty one after the last tile.
  TLM_DEVICE void Copy(int tile) {
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      CopyAsync16(Slot(tile) + i * kThreads, next_, tile + i < tiles_);
      if (tile + i + 1 < tiles_) next_ += stride_;
    }
    CopyAsyncCommit();
  }

  Elements<kWidth>* const slots_;
  const float* next_ = nullptr;
  int stride_ = 0;
  int tiles_ = 0;
};

// The same for heads of any width, element by element.
class RecordElements {
 public:
  static constexpr int kWidth = 1;

  TLM_DEVICE explicit RecordElements(void*) {}
  TLM_DEVICE void Begin(const float* first, int stride, int tiles) {
    next_ = first;
    stride_ = stride;
    tiles_ = tiles;
  }
  TLM_DEVICE void Fold(const FoldStep* steps, FoldState<kWidth>& state) {
#pragma unroll 4
    for (int tile = 0; tile < tiles_; ++tile) {
      state.Fold(LoadElements<kWidth>(next_), steps[tile]);
      next_ += stride_;
    }
  }

 private:
  const float* next_ = nullptr;
  int stride_ = 0;
  int tiles_ = 0;
};

// Makes the steps of up to `tiles` records whose (max, sum) are `rows` pairs apart, for this
// thread's row, which it shares with `lanes` - 1 others; `lanes` is a power of two. `max` is the
// row's maximum and is updated by the records. All lanes of the warp call this; a thread without a
// row has no tiles.
TLM_DEVICE void MakeFoldSteps(const float* stats, int rows, int tiles, int most_tiles, int lanes,
                              float scale_log2, FoldStep* steps, float& max) {
  constexpr int kAtOnce = 4;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const int before = static_cast<int>(threadIdx.x) % kWarpLanes - 1;
  for (int begin = 0; begin < most_tiles; begin += kAtOnce * lanes) {
    float tile_max[kAtOnce], tile_sum[kAtOnce], max_to[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int tile = begin + i * lanes + lane;
      Elements<2> loaded{{kLowest, 0.0f}};
      if (tile < tiles) loaded = LoadElements<2>(stats + int64_t{2} * tile * rows);
      tile_max[i] = loaded.at[0];
      tile_sum[i] = loaded.at[1];
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) max_to[i] = tile_sum[i] == 0.0f ? kLowest : tile_max[i];
    for (int distance = 1; distance < lanes; distance *= 2) {
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const float other = Shuffle(max_to[i], before + 1 - distance);
        if (lane >= distance) max_to[i] = Larger(other, max_to[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      max_to[i] = Larger(max_to[i], max);
      const float other = Shuffle(max_to[i], before);
      const FoldFactors factors =
          FactorsUpon(lane == 0 ? max : other, tile_max[i], tile_sum[i], scale_log2);
      const int tile = begin + i * lanes + lane;
      if (tile < tiles) steps[tile] = {factors.keep, factors.add, tile_sum[i], 0.0f};
      max = Shuffle(max_to[i], before + lanes - lane);
    }
  }
}

// Shared memory for FoldRecords, without another use until the next barrier.
struct FoldScratch {
  float* floats;  // 16-byte aligned
  int count;      // number of floats, at least 6 * kAttentionMaxRows
  void* ring;     // for the reader
};

// Folds the records of an item in the order of their tiles and writes its rows of the output. All
// threads call this; the first kThreads of them fold.
//
// The bits are the bits of FoldStats and FoldValue, applied to one record after the other. They
// round
//   keep_t, add_t    from (M_{t-1}, m_t) alone. M_t, the largest of m_0 .. m_t, is never rounded:
//   it
//                    may be computed in any order, and so all factors are computed at once
//   l, each O[d]     twice per record, in a chain over t: x = fma(x_t, add_t, x keep_t); these
//   chains
//                    stay in order, side by side
// A zero's sign in M_t may differ from the serial maximum's: M_t is only subtracted from other
// maxima, and 2^+0 = 2^-0. NaN is no maximum.
//
// A thread has kWidth elements of a row, and also folds the row's sum. Its first values are in
// flight while all lanes of a row compute the factors.
template <typename Reader, int kThreads, typename T>
TLM_DEVICE void FoldRecords(const AttentionKernelArgs& args, const AttentionUnit& unit,
                            int head_dim, const FoldScratch& scratch) {
  constexpr int kWidth = Reader::kWidth;
  const int thread = static_cast<int>(threadIdx.x);
  const int rows = unit.rows;
  const int elements = rows * head_dim;
  int lanes = kWarpLanes;  // per row, for computing its factors
  while (lanes * rows > kAttentionThreads) lanes /= 2;
  const int step_row = thread / lanes;
  float* sums = scratch.floats;
  float* next_sums = sums + kAttentionMaxRows;
  FoldStep* const steps = reinterpret_cast<FoldStep*>(scratch.floats + 2 * kAttentionMaxRows);
  const int tiles_at_once = (scratch.count - 2 * kAttentionMaxRows) / (4 * rows);
  float* const values = args.partial_values + PrefixRecordRow(unit, 0) * head_dim;
  Reader reader(scratch.ring);
  float max = kLowest;
  if (step_row < rows) {
    const auto stats = LoadElements<2>(args.partial_stats + 2 * PrefixRecordRow(unit, step_row));
    max = stats.at[0];
    if (thread % lanes == 0) sums[step_row] = stats.at[1];
  }
  int tile = LargerInt(unit.prefix_end, FirstTile(args, unit));
  for (bool done = false; !done; tile += tiles_at_once) {
    const int left = unit.item_end - tile;
    done = left <= tiles_at_once;
    const int tiles = done ? left : tiles_at_once;
    const float* const more = args.partial_values + TileRecordRow(unit, tile, 0) * head_dim;
    const int end = thread < kThreads ? elements : 0;
    int e = thread * kWidth;
    if (e < end) reader.Begin(more + e, elements, tiles);
    MakeFoldSteps(args.partial_stats + 2 * TileRecordRow(unit, tile, step_row), rows,
                  step_row < rows ? tiles : 0, tiles, lanes, args.scale_log2,
                  steps + step_row * tiles_at_once, max);
    SyncThreads();
    while (e < end) {
      const int row = e / head_dim;
      const int column = e % head_dim;
      FoldState<kWidth> state{LoadElements<kWidth>(values + e), sums[row]};
      reader.Fold(steps + row * tiles_at_once, state);
      if (done) {
        T* const out =
            static_cast<T*>(args.out) + RowOffset(args, unit, row, args.out_stride) + column;
        const float reciprocal = 1.0f / state.sum;
#pragma unroll
        for (int i = 0; i < kWidth; ++i) out[i] = FromFloat<T>(state.values.at[i] * reciprocal);
      } else {
        *reinterpret_cast<Elements<kWidth>*>(values + e) = state.values;
        if (column == 0) next_sums[row] = state.sum;
      }
      e += kThreads * kWidth;
      if (e < end) reader.Begin(more + e, elements, tiles);
    }
    SyncThreads();
    float* const swapped = sums;
    sums = next_sums;
    next_sums = swapped;
  }
}

}  // namespace simt
}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_ATTENTION_DEVICE_H_
