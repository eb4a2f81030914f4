#include "model/ops/cuda/kernels/attention/fp8_rows.h"
#include "model/ops/cuda/kernels/attention/prepare_attention.h"
#include "model/ops/cuda/kernels/launch.h"
#include "model/ops/cuda/kernels/simt.h"

namespace tlm {
namespace {

using namespace simt;

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarpLanes;
constexpr int kPageTokens = 64;
// Elements of a lane's unit: two neighbours in the head's first part and two in its second.
constexpr int kUnit = 4;

struct PrepareAttentionKernelArgs {
  PrepareAttentionArgs op;
  // Number of elements in the head's first part: half of the head, made even if pairs are
  // neighbours. So element i of the first part and element i of the second are in one unit, and so
  // are elements 2i and 2i + 1.
  int32_t first_part;
  bool paired;  // both parts are whole pairs, and a pair can be moved in one access
};

// Two neighbouring elements, moved in one access.
template <typename T>
struct alignas(2 * sizeof(T)) Neighbours {
  T low, high;
};

TLM_DEVICE uint32_t LargerBits(uint32_t a, uint32_t b) { return a > b ? a : b; }

// The destination of a key or a value in an 8-bit cache.
struct Fp8Row {
  uint8_t* elements;
  uint8_t* scale;
};

// A head's elements, distributed over a warp: lane i has units i, i + 32, ...
template <typename T, int kUnits>
struct Head {
  const PrepareAttentionKernelArgs& args;
  float v[kUnits][kUnit];

  // The index of unit u's first neighbour, from the start of each part.
  static TLM_DEVICE int Pair(int u) {
    return 2 * (u * kWarpLanes + static_cast<int>(threadIdx.x % kWarpLanes));
  }
  // The index within the head of element j of unit u; -1: it does not exist.
  TLM_DEVICE int Index(int u, int j) const {
    const int offset = Pair(u) + j % 2;
    if (j < 2) return offset < args.first_part ? offset : -1;
    return args.first_part + offset < args.op.head_dim ? args.first_part + offset : -1;
  }

  TLM_DEVICE void Load(const T* head) {
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      if (!args.paired) {
#pragma unroll
        for (int j = 0; j < kUnit; ++j)
          v[u][j] = Index(u, j) < 0 ? 0.0f : ToFloat(head[Index(u, j)]);
        continue;
      }
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        Neighbours<T> pair{FromFloat<T>(0.0f), FromFloat<T>(0.0f)};
        if (Pair(u) < args.first_part) {
          pair = *reinterpret_cast<const Neighbours<T>*>(head + part * args.first_part + Pair(u));
        }
        v[u][2 * part] = ToFloat(pair.low);
        v[u][2 * part + 1] = ToFloat(pair.high);
      }
    }
  }
  TLM_DEVICE void Store(T* head) const {
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      if (!args.paired) {
#pragma unroll
        for (int j = 0; j < kUnit; ++j) {
          if (Index(u, j) >= 0) head[Index(u, j)] = FromFloat<T>(v[u][j]);
        }
        continue;
      }
      if (Pair(u) >= args.first_part) continue;
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        *reinterpret_cast<Neighbours<T>*>(head + part * args.first_part + Pair(u)) = {
            FromFloat<T>(v[u][2 * part]), FromFloat<T>(v[u][2 * part + 1])};
      }
    }
  }
  // Stores a row of a page (fp8_rows.h), with the values that Store would write. All lanes take
  // part.
  TLM_DEVICE void StoreFp8(const Fp8Row& row) const {
    float rounded[kUnits][kUnit];
    uint32_t largest = 0;
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
#pragma unroll
      for (int j = 0; j < kUnit; ++j) {
        rounded[u][j] = ToFloat(FromFloat<T>(v[u][j]));
        largest = LargerBits(FloatBits(rounded[u][j]) & 0x7fffffffu, largest);
      }
    }
#pragma unroll
    for (int mask = kWarpLanes / 2; mask > 0; mask /= 2) {
      largest = LargerBits(ShuffleXor(largest, mask), largest);
    }
    const uint8_t scale = Fp8ScaleOf(largest);
    const float inverse = Fp8InverseScale(scale);
    if (threadIdx.x % kWarpLanes == 0) *row.scale = scale;
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
#pragma unroll
      for (int j = 0; j < kUnit; ++j) {
        if (Index(u, j) < 0) continue;
        row.elements[Fp8Place(args.op.head_dim, Index(u, j))] = Fp8Of(rounded[u][j] * inverse);
      }
    }
  }

  // Loads the gains of the lane's elements; 0 for elements that do not exist.
  TLM_DEVICE void LoadGains(const float* from, float (&gain)[kUnits][kUnit]) const {
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
#pragma unroll
      for (int j = 0; j < kUnit; ++j) gain[u][j] = Index(u, j) < 0 ? 0.0f : from[Index(u, j)];
    }
  }
  // All lanes take part in the sum.
  TLM_DEVICE void Normalise(const float (&gain)[kUnits][kUnit]) {
    float squares = 0.0f;
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
#pragma unroll
      for (int j = 0; j < kUnit; ++j) squares = Fma(v[u][j], v[u][j], squares);
    }
#pragma unroll
    for (int mask = kWarpLanes / 2; mask > 0; mask /= 2) squares += ShuffleXor(squares, mask);
    const float mean = squares / static_cast<float>(args.op.head_dim);
    const float scale = args.op.eps_outside_root ? 1.0f / (Sqrt(mean) + args.op.eps)
                                                 : 1.0f / Sqrt(mean + args.op.eps);
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
#pragma unroll
      for (int j = 0; j < kUnit; ++j) {
        if (Index(u, j) >= 0) v[u][j] = v[u][j] * scale * gain[u][j];
      }
    }
  }

  // Returns the index of the first element of the lane's pair `i` of unit u, i < 2; -1: it does not
  // exist.
  TLM_DEVICE int First(int u, int i) const { return Index(u, args.op.interleaved ? 2 * i : i); }
  // Loads (cos, sin) of the lane's pairs; `from` has pair k at 2 k.
  TLM_DEVICE void LoadAngles(const float* from, Neighbours<float> (&angles)[kUnits][2]) const {
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = args.op.interleaved ? First(u, i) : 2 * First(u, i);
        angles[u][i] = {0.0f, 0.0f};
        if (at >= 0) angles[u][i] = *reinterpret_cast<const Neighbours<float>*>(from + at);
      }
    }
  }
  TLM_DEVICE void Rotate(const Neighbours<float> (&angles)[kUnits][2]) {
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      if (args.op.interleaved) {
        if (First(u, 0) >= 0) RotatePair(angles[u][0], v[u][0], v[u][1]);
        if (First(u, 1) >= 0) RotatePair(angles[u][1], v[u][2], v[u][3]);
      } else {
        if (First(u, 0) >= 0) RotatePair(angles[u][0], v[u][0], v[u][2]);
        if (First(u, 1) >= 0) RotatePair(angles[u][1], v[u][1], v[u][3]);
      }
    }
  }
  static TLM_DEVICE void RotatePair(const Neighbours<float>& angle, float& first, float& second) {
    const float cosine = angle.low;
    const float sine = angle.high;
    const float rotated = first * cosine - second * sine;
    second = first * sine + second * cosine;
    first = rotated;
  }
};

// The page with the key or value of a position and KV head, numbered from the cache's first page.
TLM_DEVICE int64_t CachePage(const PrepareAttentionArgs& op, int64_t token, int32_t position,
                             int32_t kv_head, bool is_value) {
  const int64_t block = op.block_tables[op.table_of[token] + position / kPageTokens];
  return (block * op.layers * 2 + (is_value ? 1 : 0)) * op.num_kv_heads + kv_head;
}

// One warp per (token, head), the heads of a token in turn; kUnits * 128 >= head_dim. Everything
// that no kernel writes (position, block, angles, gains) is loaded before the wait; after it only
// the head itself is loaded.
template <typename T, int kUnits, bool kFp8>
TLM_DEVICE void Prepare(const PrepareAttentionKernelArgs& args) {
  LetNextStart();
  const PrepareAttentionArgs& op = args.op;
  const uint32_t all_heads = static_cast<uint32_t>(op.num_heads + 2 * op.num_kv_heads);
  const uint32_t warp = blockIdx.x * kWarps + threadIdx.x / kWarpLanes;
  const uint32_t token = warp / all_heads;
  const int32_t position = token < op.tokens ? op.positions[token] : -1;
  const int32_t head = static_cast<int32_t>(warp % all_heads);
  const bool is_query = head < op.num_heads;
  const bool is_value = head >= op.num_heads + op.num_kv_heads;
  const bool normalises = !is_value && op.q_gain != nullptr;
  const bool rotates = !is_value && op.rope_table != nullptr;
  T* const from = static_cast<T*>(op.qkv) + token * op.qkv_stride + int64_t{head} * op.head_dim;
  T* to = from;
  Fp8Row row{};
  Head<T, kUnits> values{args, {}};
  float gain[kUnits][kUnit];
  Neighbours<float> angles[kUnits][2];
  if (normalises) values.LoadGains(is_query ? op.q_gain : op.k_gain, gain);
  if (position >= 0) {
    if (rotates) values.LoadAngles(op.rope_table + int64_t{position} * op.head_dim, angles);
    if (!is_query) {
      const int32_t kv_head = head - op.num_heads - (is_value ? op.num_kv_heads : 0);
      const int64_t page = CachePage(op, token, position, kv_head, is_value);
      const int32_t slot = position % kPageTokens;
      if constexpr (kFp8) {
        uint8_t* const bytes = static_cast<uint8_t*>(op.cache) + page * Fp8PageBytes(op.head_dim);
        row = {bytes + slot * op.head_dim, bytes + Fp8ScaleOffset(op.head_dim, slot)};
      } else {
        to = static_cast<T*>(op.cache) + (page * kPageTokens + slot) * op.head_dim;
      }
    }
  }
  WaitForPrevious();
  if (position < 0) return;
  values.Load(from);
  if (normalises) values.Normalise(gain);
  if (rotates) values.Rotate(angles);
  if constexpr (kFp8) {
    if (!is_query) return values.StoreFp8(row);
  }
  values.Store(to);
}

template <typename T, int kUnits>
TLM_KERNEL PrepareAttention(const PrepareAttentionKernelArgs args) {
  Prepare<T, kUnits, false>(args);
}
// For an 8-bit cache.
template <typename T, int kUnits>
TLM_KERNEL PrepareAttentionFp8(const PrepareAttentionKernelArgs args) {
  Prepare<T, kUnits, true>(args);
}

using Kernel = void (*)(PrepareAttentionKernelArgs);

template <typename T>
Kernel KernelFor(int64_t head_dim, bool fp8) {
  if (head_dim <= kWarpLanes * kUnit) {
    return fp8 ? PrepareAttentionFp8<T, 1> : PrepareAttention<T, 1>;
  }
  if (head_dim <= 2 * kWarpLanes * kUnit) {
    return fp8 ? PrepareAttentionFp8<T, 2> : PrepareAttention<T, 2>;
  }
  return fp8 ? PrepareAttentionFp8<T, 8> : PrepareAttention<T, 8>;
}

template <typename T>
cudaError_t LaunchFor(const PrepareAttentionArgs& op, cudaStream_t stream) {
  const int64_t warps = op.tokens * (op.num_heads + 2 * int64_t{op.num_kv_heads});
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>((warps + kWarps - 1) / kWarps)),
                          .block = dim3(kThreads)};
  // Heads are contiguous in rows and in the cache, so all are aligned if the first is.
  const bool aligned = reinterpret_cast<uintptr_t>(op.qkv) % (2 * sizeof(T)) == 0 &&
                       reinterpret_cast<uintptr_t>(op.cache) % (2 * sizeof(T)) == 0 &&
                       op.qkv_stride % 2 == 0;
  const PrepareAttentionKernelArgs args{
      .op = op,
      .first_part = op.interleaved ? (op.head_dim + 3) / 4 * 2 : (op.head_dim + 1) / 2,
      .paired = aligned && op.head_dim % kUnit == 0};
  return Launch(KernelFor<T>(op.head_dim, op.fp8), shape, stream, args);
}

}  // namespace

cudaError_t LoadPrepareAttention(DType activations, int64_t head_dim, bool fp8) {
  switch (activations) {
    case DType::kF32:
      return LoadKernel(KernelFor<float>(head_dim, fp8));
    case DType::kBF16:
      return LoadKernel(KernelFor<Bf16>(head_dim, fp8));
    case DType::kF16:
      return LoadKernel(KernelFor<F16>(head_dim, fp8));
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t LaunchPrepareAttention(const PrepareAttentionArgs& args, DType activations,
                                   cudaStream_t stream) {
  if (args.tokens == 0) return cudaSuccess;
  switch (activations) {
    case DType::kF32:
      return LaunchFor<float>(args, stream);
    case DType::kBF16:
      return LaunchFor<Bf16>(args, stream);
    case DType::kF16:
      return LaunchFor<F16>(args, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace tlm
