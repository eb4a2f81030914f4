// Attention without tensor cores, for any head_dim and any type; each sum takes one element after
// the other. See attention.h.
//
// A block of 128 threads takes its units one after the other. For a tile, thread i computes the
// scores of key i % 64 and every other row, from pieces of K that pass through shared memory; a
// warp computes a row's weights; and thread i sums columns i, i + 128, .. of P V, for all rows,
// from V in the cache. Rows are few enough that everything fits 48 KiB.
#include "model/ops/cuda/kernels/attention/attention_device.h"
#include "model/ops/cuda/kernels/attention/fp8_rows.h"
#include "model/ops/cuda/kernels/launch.h"

namespace tlm {
namespace simt {
namespace {

constexpr int kWarps = kAttentionThreads / kWarpLanes;
// Columns of K in shared memory at a time. Rows are padded by one element, so that neighbouring
// keys are in different banks.
constexpr int kPiece = 32;
constexpr int kPieceStride = kPiece + 1;
// Marks the weight of a key that the row does not see: its value is ignored, even if not finite.
constexpr float kUnseen = -1.0f;

struct alignas(16) Float4 {
  float at[4];
};

template <typename T>
TLM_DEVICE float Rounded(float value) {
  return ToFloat(FromFloat<T>(value));
}

// A page of the cache: a block's keys or values of one kv head.
template <typename T>
struct PlainPage {
  const T* data;
  int head_dim;

  TLM_DEVICE PlainPage(const void* cache, int64_t page, int dim)
      : data(static_cast<const T*>(cache) + page * kAttentionTile * dim), head_dim(dim) {}
  TLM_DEVICE float At(int row, int d) const { return ToFloat(data[row * head_dim + d]); }
};
struct Fp8Page {
  const uint32_t* words;  // pages are whole words; all accesses read words
  int head_dim;

  TLM_DEVICE Fp8Page(const void* cache, int64_t page, int dim)
      : words(static_cast<const uint32_t*>(cache) + page * Fp8PageBytes(dim) / 4), head_dim(dim) {}
  TLM_DEVICE uint8_t Byte(int at) const {
    return static_cast<uint8_t>(words[at / 4] >> at % 4 * 8);
  }
  TLM_DEVICE float At(int row, int d) const {
    return Fp8Value(Byte(row * head_dim + Fp8Place(head_dim, d))) *
           Fp8Scale(Byte(Fp8ScaleOffset(head_dim, row)));
  }
};

template <int kRows, typename T, typename Page>
struct SimtAttention {
  // Stride of weight rows: whole Float4s, with keys spread over the banks.
  static constexpr int kWeightStride = kRows + 4;

  const AttentionKernelArgs& args;
  const int width;       // head_dim, rounded up to whole Float4s
  float* const q;        // [kRows][width], zeros after head_dim
  float* const values;   // [kRows][width]: the running sums
  float* const scratch;  // the remaining memory, for folding records
  float* const ring;     // its end
  float* const piece;    // [64][kPieceStride]
  float* const weights;  // [64][kWeightStride]
  float* const max;      // [kRows]
  float* const sum;      // [kRows]
  float* const factors;  // [kRows][2]

  static constexpr int kScratchFloats = kAttentionTile * (kPieceStride + kWeightStride) + 4 * kRows;
  static constexpr int kFoldThreads = kWarpLanes;
  using Ring = RecordRing<kFoldThreads>;
  static constexpr int kRingFloats = Ring::kBytes / sizeof(float);
  static_assert(kScratchFloats - kRingFloats >= 6 * kAttentionMaxRows && kScratchFloats % 4 == 0);
  static TLM_HOST_DEVICE int Width(int head_dim) { return (head_dim + 3) / 4 * 4; }
  static TLM_HOST_DEVICE size_t SharedBytes(int head_dim) {
    return (static_cast<size_t>(2 * kRows * Width(head_dim)) + kScratchFloats) * sizeof(float);
  }

  TLM_DEVICE SimtAttention(const AttentionKernelArgs& a, float* shared)
      : args(a),
        width(Width(a.head_dim)),
        q(shared),
        values(q + kRows * width),
        scratch(values + kRows * width),
        ring(scratch + kScratchFloats - kRingFloats),
        piece(scratch),
        weights(piece + kAttentionTile * kPieceStride),
        max(weights + kAttentionTile * kWeightStride),
        sum(max + kRows),
        factors(sum + kRows) {}

  static TLM_DEVICE int Thread() { return static_cast<int>(threadIdx.x); }

  TLM_DEVICE void Run() const {
    const int end = FirstUnits(args)[blockIdx.x + 1];
    for (int i = FirstUnits(args)[blockIdx.x]; i < end; ++i) {
      const AttentionUnit unit = UnitAt(args, i);
      SyncThreads();
      LoadQueries(unit);
      for (int tile = FirstTileOfUnit(args, unit); tile < unit.end; ++tile) {
        const int64_t block = args.block_tables[unit.table + tile];
        const int64_t page = block * args.layers * 2 * args.num_kv_heads + unit.kv_head;
        Scores(unit, tile, Page(args.cache, page, args.head_dim));
        Softmax(unit, tile);
        WeighValues(unit, tile, Page(args.cache, page + args.num_kv_heads, args.head_dim));
      }
      Finish(unit);
      if (unit.units == 1) continue;
      if (!IsLastOfItem(args, unit, reinterpret_cast<uint32_t*>(scratch))) continue;
      SyncThreads();
      if (args.head_dim % 4 == 0) {
        FoldRecords<Ring, kFoldThreads, T>(args, unit, args.head_dim,
                                           {scratch, kScratchFloats - kRingFloats, ring});
      } else {
        FoldRecords<RecordElements, kAttentionThreads, T>(args, unit, args.head_dim,
                                                          {scratch, kScratchFloats, nullptr});
      }
    }
  }

  TLM_DEVICE void LoadQueries(const AttentionUnit& unit) const {
    for (int i = Thread(); i < kRows * width; i += kAttentionThreads) {
      const int row = i / width;
      const int d = i % width;
      float element = 0.0f;
      if (row < unit.rows && d < args.head_dim) {
        element =
            ToFloat(static_cast<const T*>(args.q)[RowOffset(args, unit, row, args.q_stride) + d]);
      }
      q[i] = element;
      values[i] = 0.0f;
    }
    if (Thread() < kRows) {
      max[Thread()] = kLowest;
      sum[Thread()] = 0.0f;
    }
  }

  // Computes weights[key][row] = the score, or -infinity if the row does not see the key.
  TLM_DEVICE void Scores(const AttentionUnit& unit, int tile, const Page& keys) const {
    const Seen any = SeenByAny(args, unit, tile);
    const int key = Thread() % kAttentionTile;
    const int first_row = Thread() / kAttentionTile;
    float score[kRows / 2] = {};
    for (int begin = 0; begin < width; begin += kPiece) {
      SyncThreads();
      for (int i = Thread(); i < kAttentionTile * kPiece; i += kAttentionThreads) {
        const int row = i / kPiece;
        const int d = begin + i % kPiece;
        const bool exists = any(row) && d < args.head_dim;
        piece[row * kPieceStride + i % kPiece] = exists ? keys.At(row, d) : 0.0f;
      }
      SyncThreads();
      const int count = width - begin < kPiece ? width - begin : kPiece;
      for (int d = 0; d < count; d += 4) {
#pragma unroll
        for (int r = 0; r < kRows / 2; ++r) {
          const int row = first_row + 2 * r;
          if (row >= unit.rows) break;
          const Float4 four = *reinterpret_cast<const Float4*>(q + row * width + begin + d);
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            score[r] = Fma(four.at[e], piece[key * kPieceStride + d + e], score[r]);
          }
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kRows / 2; ++r) {
      const int row = first_row + 2 * r;
      const Seen seen = SeenOfPosition(args, PositionOf(args, unit, row), tile);
      weights[key * kWeightStride + row] = seen(key) ? score[r] : kLowest;
    }
    SyncThreads();
  }

  // Converts scores to weights, two keys per lane, and computes the tile's values for the fold.
  TLM_DEVICE void Softmax(const AttentionUnit& unit, int tile) const {
    const int lane = Thread() % kWarpLanes;
    for (int row = Thread() / kWarpLanes; row < unit.rows; row += kWarps) {
      const Seen seen = SeenOfPosition(args, PositionOf(args, unit, row), tile);
      float* const low = weights + lane * kWeightStride + row;
      float* const high = low + kWarpLanes * kWeightStride;
      float tile_max = Larger(*high, Larger(*low, kLowest));
#pragma unroll
      for (int mask = kWarpLanes / 2; mask > 0; mask /= 2) {
        tile_max = Larger(ShuffleXor(tile_max, mask), tile_max);
      }
      const float w_low = Weight(*low, tile_max, args.scale_log2);
      const float w_high = Weight(*high, tile_max, args.scale_log2);
      float tile_sum = w_low + w_high;
#pragma unroll
      for (int mask = kWarpLanes / 2; mask > 0; mask /= 2) tile_sum += ShuffleXor(tile_sum, mask);
      *low = seen(lane) ? Rounded<T>(w_low) : kUnseen;
      *high = seen(lane + kWarpLanes) ? Rounded<T>(w_high) : kUnseen;
      if (lane == 0) TakeStats(unit, tile, row, tile_max, tile_sum);
    }
    SyncThreads();
  }

  TLM_DEVICE void TakeStats(const AttentionUnit& unit, int tile, int row, float tile_max,
                            float tile_sum) const {
    if (IsPrefix(unit)) {
      const FoldFactors made = FoldStats(tile_max, tile_sum, args.scale_log2, max[row], sum[row]);
      factors[2 * row] = made.keep;
      factors[2 * row + 1] = made.add;
    } else {
      WriteStats(TileRecordRow(unit, tile, row), tile_max, tile_sum);
    }
  }

  TLM_DEVICE void WeighValues(const AttentionUnit& unit, int tile, const Page& tile_values) const {
    const Seen any = SeenByAny(args, unit, tile);
    const int begin = LargerInt(any.first, 0);
    const int end = any.last < kAttentionTile ? any.last + 1 : kAttentionTile;
    for (int d = Thread(); d < args.head_dim; d += kAttentionThreads) {
      float out[kRows] = {};
#pragma unroll 4
      for (int key = begin; key < end; ++key) {
        const float value = tile_values.At(key, d);
#pragma unroll
        for (int r = 0; r < kRows; r += 4) {
          if (r >= unit.rows) break;
          const Float4 four = *reinterpret_cast<const Float4*>(weights + key * kWeightStride + r);
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            if (four.at[e] != kUnseen) out[r + e] = Fma(four.at[e], value, out[r + e]);
          }
        }
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (r < unit.rows) TakeValue(unit, tile, r, d, out[r]);
      }
    }
  }

  TLM_DEVICE void TakeValue(const AttentionUnit& unit, int tile, int row, int d,
                            float value) const {
    if (IsPrefix(unit)) {
      float& running = values[row * width + d];
      running = FoldValue(value, {factors[2 * row], factors[2 * row + 1]}, running);
    } else {
      args.partial_values[TileRecordRow(unit, tile, row) * args.head_dim + d] = value;
    }
  }

  TLM_DEVICE void WriteStats(int64_t record_row, float tile_max, float tile_sum) const {
    args.partial_stats[2 * record_row] = tile_max;
    args.partial_stats[2 * record_row + 1] = tile_sum;
  }

  // Writes the columns that this thread has folded.
  TLM_DEVICE void Finish(const AttentionUnit& unit) const {
    if (!IsPrefix(unit)) return;
    SyncThreads();
    if (Thread() < unit.rows) factors[Thread()] = 1.0f / sum[Thread()];
    SyncThreads();
    for (int row = 0; row < unit.rows; ++row) {
      T* const out = static_cast<T*>(args.out) + RowOffset(args, unit, row, args.out_stride);
      float* const record = args.partial_values + PrefixRecordRow(unit, row) * args.head_dim;
      for (int d = Thread(); d < args.head_dim; d += kAttentionThreads) {
        const float value = values[row * width + d];
        if (unit.units == 1) {
          out[d] = FromFloat<T>(value * factors[row]);
        } else {
          record[d] = value;
        }
      }
      if (unit.units > 1 && Thread() == 0) {
        WriteStats(PrefixRecordRow(unit, row), max[row], sum[row]);
      }
    }
  }
};

template <int kRows, typename T, typename Page>
TLM_DEVICE void Attend(const AttentionKernelArgs& args) {
  LetNextStart();
  if (HasNothingToDo(args)) return;
  WaitForPrevious();
  SimtAttention<kRows, T, Page>(args, SharedMemory<float>()).Run();
}

template <typename T, int kRows>
TLM_KERNEL __launch_bounds__(kAttentionThreads, 4) AttendSimt(const AttentionKernelArgs args) {
  Attend<kRows, T, PlainPage<T>>(args);
}
// For a cache in 8 bits.
template <typename T, int kRows>
TLM_KERNEL __launch_bounds__(kAttentionThreads, 4) AttendSimtFp8(const AttentionKernelArgs args) {
  Attend<kRows, T, Fp8Page>(args);
}

template <typename T, int kRows>
constexpr auto KernelFor(bool fp8) {
  return fp8 ? AttendSimtFp8<T, kRows> : AttendSimt<T, kRows>;
}

template <typename T, int kRows>
cudaError_t LaunchRows(const AttentionArgs& args, cudaStream_t stream) {
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(args.blocks)),
      .block = dim3(kAttentionThreads),
      .shared_bytes = SimtAttention<kRows, T, PlainPage<T>>::SharedBytes(args.head_dim)};
  return Launch(KernelFor<T, kRows>(args.fp8), shape, stream, AttentionKernelArgs(args));
}

template <typename T>
cudaError_t LaunchType(const AttentionArgs& args, cudaStream_t stream) {
  if (SimtAttentionRows(args.head_dim) == 16) return LaunchRows<T, 16>(args, stream);
  return LaunchRows<T, 4>(args, stream);
}

template <typename T>
cudaError_t LoadType(int64_t head_dim, bool fp8) {
  return LoadKernel(SimtAttentionRows(head_dim) == 16 ? KernelFor<T, 16>(fp8)
                                                      : KernelFor<T, 4>(fp8));
}

}  // namespace
}  // namespace simt

cudaError_t LoadSimtAttention(DType activations, int64_t head_dim, bool fp8) {
  switch (activations) {
    case DType::kF32:
      return simt::LoadType<float>(head_dim, fp8);
    case DType::kBF16:
      return simt::LoadType<simt::Bf16>(head_dim, fp8);
    case DType::kF16:
      return simt::LoadType<simt::F16>(head_dim, fp8);
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t LaunchSimtAttention(const AttentionArgs& args, DType activations, cudaStream_t stream) {
  switch (activations) {
    case DType::kF32:
      return simt::LaunchType<float>(args, stream);
    case DType::kBF16:
      return simt::LaunchType<simt::Bf16>(args, stream);
    case DType::kF16:
      return simt::LaunchType<simt::F16>(args, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace tlm
