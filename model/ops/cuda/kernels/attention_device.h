// What both attention kernels share: units, the fold, records. Included by their files only; the
// formulas are in attention.h, the units in attention_work.h. Blocks have kAttentionThreads
// threads.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_DEVICE_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_DEVICE_H_

#include "model/ops/cuda/kernels/attention.h"
#include "model/ops/cuda/kernels/attention_work.h"
#include "model/ops/cuda/kernels/math.h"
#include "model/ops/cuda/kernels/simt.h"

namespace tlm {

inline constexpr int kAttentionThreads = 128;

// LaunchAttention without tensor cores.
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

TLM_DEVICE float Larger(float a, float b) { return a > b ? a : b; }
TLM_DEVICE int LargerInt(int a, int b) { return a > b ? a : b; }

// --- The fold. ---

struct FoldFactors {
  float keep;
  float add;
};

// Folds a tile's (max, sum) upon the running one and returns how its values fold. A tile of which
// the row sees nothing has sum 0 and values +0: it leaves every bit as it is, the sign of a zero
// too, as x * 1 + 0 * -0 does.
TLM_DEVICE FoldFactors FoldStats(float tile_max, float tile_sum, float scale_log2, float& max,
                                 float& sum) {
  if (tile_sum == 0.0f) return {1.0f, -0.0f};
  const float new_max = Larger(tile_max, max);
  const FoldFactors factors{Exp2OfNegative((max - new_max) * scale_log2),
                            Exp2OfNegative((tile_max - new_max) * scale_log2)};
  sum = Fma(tile_sum, factors.add, sum * factors.keep);
  max = new_max;
  return factors;
}
TLM_DEVICE float FoldValue(float tile, FoldFactors factors, float value) {
  return Fma(tile, factors.add, value * factors.keep);
}

// The weight of a score; `max` is that of the tile, or -infinity where the row sees nothing.
TLM_DEVICE float Weight(float score, float max, float scale_log2) {
  return Exp2OfNegative((score - (max == kLowest ? 0.0f : max)) * scale_log2);
}

// --- Units. ---

TLM_DEVICE const int32_t* FirstUnits(const AttentionKernelArgs& args) {
  return static_cast<const int32_t*>(args.work);
}
TLM_DEVICE const AttentionUnit& UnitAt(const AttentionKernelArgs& args, int32_t unit) {
  return args.units[unit];
}

// The first position that a token at `position` sees.
TLM_DEVICE int FirstSeen(const AttentionKernelArgs& args, int position) {
  if (args.window <= 0 || position + 1 <= args.window) return 0;
  return static_cast<int>(position + 1 - args.window);
}
TLM_DEVICE int PositionOf(const AttentionKernelArgs& args, const AttentionUnit& unit, int row) {
  return unit.position + (unit.head + row) / args.group;
}
// The first key tile any row of the unit's item sees. The work may begin before it.
TLM_DEVICE int FirstTile(const AttentionKernelArgs& args, const AttentionUnit& unit) {
  return FirstSeen(args, unit.position) / kAttentionTile;
}
TLM_DEVICE int FirstTileOfUnit(const AttentionKernelArgs& args, const AttentionUnit& unit) {
  return LargerInt(unit.begin, FirstTile(args, unit));
}

// Element 0 of a query row in q or out.
TLM_DEVICE int64_t RowOffset(const AttentionKernelArgs& args, const AttentionUnit& unit, int row,
                             int64_t stride) {
  const int64_t token = unit.token + (unit.head + row) / args.group;
  const int64_t head = unit.kv_head * args.group + (unit.head + row) % args.group;
  return token * stride + head * args.head_dim;
}

// Keys [first, last] of a tile are visible: relative to its beginning, perhaps outside of it.
struct Seen {
  int first;
  int last;
  TLM_DEVICE bool operator()(int key) const { return key >= first && key <= last; }
  TLM_DEVICE bool All() const { return first <= 0 && last >= kAttentionTile - 1; }
};
TLM_DEVICE Seen SeenOfPosition(const AttentionKernelArgs& args, int position, int tile) {
  return {FirstSeen(args, position) - tile * kAttentionTile, position - tile * kAttentionTile};
}
// By any row of the unit.
TLM_DEVICE Seen SeenByAny(const AttentionKernelArgs& args, const AttentionUnit& unit, int tile) {
  const int base = tile * kAttentionTile;
  return {FirstSeen(args, unit.position) - base, PositionOf(args, unit, unit.rows - 1) - base};
}
// By every row of the unit.
TLM_DEVICE Seen SeenByAll(const AttentionKernelArgs& args, const AttentionUnit& unit, int tile) {
  const int base = tile * kAttentionTile;
  return {FirstSeen(args, PositionOf(args, unit, unit.rows - 1)) - base, unit.position - base};
}

// --- Records. ---

// The partial row of a query row in record 0, or in that of a tile outside the prefix.
TLM_DEVICE int64_t PrefixRecordRow(const AttentionUnit& unit, int row) {
  return unit.partial_row + row;
}
TLM_DEVICE int64_t TileRecordRow(const AttentionUnit& unit, int tile, int row) {
  return unit.partial_row + int64_t{1 + tile - unit.prefix_end} * unit.rows + row;
}
TLM_DEVICE bool IsPrefix(const AttentionUnit& unit) { return unit.end <= unit.prefix_end; }

// All threads, after the unit's records: whether all others of the item are done too. Their records
// are then visible. `scratch` is shared memory that is not used otherwise meanwhile.
TLM_DEVICE bool IsLastOfItem(const AttentionKernelArgs& args, const AttentionUnit& unit,
                             uint32_t* scratch) {
  SyncThreads();
  if (threadIdx.x == 0) {
    // The barrier has ordered what the other threads wrote before this, too.
    FenceDevice();
    uint32_t* const ticket = args.tickets + unit.ticket;
    const bool last = AtomicAdd(ticket, 1) + 1 == static_cast<uint32_t>(unit.units);
    // For the next launch.
    if (last) *ticket = 0;
    FenceDevice();
    *scratch = last;
  }
  SyncThreads();
  return *scratch != 0;
}

// Folds the records of an item in the order of their tiles and writes its rows of the output. All
// threads; `scratch` is shared memory of `scratch_floats` >= 4 * kAttentionMaxRows, in no other use
// until the next barrier.
//
// A thread a row first makes the factors of as many tiles as fit, then every thread folds elements.
template <typename T>
TLM_DEVICE void FoldRecords(const AttentionKernelArgs& args, const AttentionUnit& unit,
                            float* scratch, int scratch_floats) {
  const int thread = static_cast<int>(threadIdx.x);
  const int rows = unit.rows;
  const int elements = rows * args.head_dim;
  float* const reciprocals = scratch;
  float* const factors = scratch + kAttentionMaxRows;  // [tiles][rows][2]
  const int tiles_at_once = (scratch_floats - kAttentionMaxRows) / (2 * rows);
  float* const values = args.partial_values + PrefixRecordRow(unit, 0) * args.head_dim;
  float max = 0.0f;
  float sum = 0.0f;
  if (thread < rows) {
    max = args.partial_stats[2 * PrefixRecordRow(unit, thread)];
    sum = args.partial_stats[2 * PrefixRecordRow(unit, thread) + 1];
  }
  int tile = LargerInt(unit.prefix_end, FirstTile(args, unit));
  for (bool done = false; !done; tile += tiles_at_once) {
    const int left = unit.item_end - tile;
    done = left <= tiles_at_once;
    const int tiles = done ? left : tiles_at_once;
    const float* const stats = args.partial_stats + 2 * TileRecordRow(unit, tile, 0);
    for (int i = thread; i < 2 * tiles * rows; i += kAttentionThreads) factors[i] = stats[i];
    SyncThreads();
    if (thread < rows) {
      for (int t = 0; t < tiles; ++t) {
        float* const factor = factors + 2 * (t * rows + thread);
        const FoldFactors made = FoldStats(factor[0], factor[1], args.scale_log2, max, sum);
        factor[0] = made.keep;
        factor[1] = made.add;
      }
      reciprocals[thread] = 1.0f / sum;
    }
    SyncThreads();
    const float* const more = args.partial_values + TileRecordRow(unit, tile, 0) * args.head_dim;
    for (int e = thread; e < elements; e += kAttentionThreads) {
      const int row = e / args.head_dim;
      float value = values[e];
#pragma unroll 8
      for (int t = 0; t < tiles; ++t) {
        const float* const factor = factors + 2 * (t * rows + row);
        value = FoldValue(more[int64_t{t} * elements + e], {factor[0], factor[1]}, value);
      }
      if (done) {
        T* const out = static_cast<T*>(args.out) + RowOffset(args, unit, row, args.out_stride);
        out[e % args.head_dim] = FromFloat<T>(value * reciprocals[row]);
      } else {
        values[e] = value;
      }
    }
    SyncThreads();
  }
}

}  // namespace simt
}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_DEVICE_H_
