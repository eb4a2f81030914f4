// From accumulators to outputs, as GemmOutput says. Included by kernels only.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_GEMM_EPILOGUE_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_GEMM_EPILOGUE_H_

#include <cstdint>

#include "model/ops/cuda/kernels/activations.h"
#include "model/ops/cuda/kernels/gemm_kernels.h"
#include "model/ops/cuda/kernels/row_access.h"
#include "model/ops/cuda/kernels/simt.h"

namespace tlm::simt {

// Gates (and ups) of a group in a gated matrix.
inline constexpr int kGateGroup = 16;

TLM_HOST_DEVICE float Activated(GemmActivation activation, float v) {
  switch (activation) {
    case GemmActivation::kNone:
      return v;
    case GemmActivation::kSilu:
      return Silu(v);
    case GemmActivation::kRelu:
      return Relu(v);
    case GemmActivation::kGeluTanh:
      return GeluTanh(v);
    case GemmActivation::kGelu:
      return Gelu(v);
  }
  return v;
}

template <typename T>
TLM_DEVICE float RoundOutput(const GemmOutput& output, float v) {
  return output.out_float32 ? v : ToFloat(FromFloat<T>(v));
}

// v of `column`, before the activation.
template <typename T>
TLM_DEVICE float Biased(const GemmOutput& output, float accumulator, int64_t column) {
  const float v = RoundOutput<T>(output, accumulator);
  return output.bias == nullptr ? v : RoundOutput<T>(output, v + output.bias[column]);
}

template <typename T>
TLM_DEVICE void Store(const GemmOutput& output, int64_t token, int64_t column, float v) {
  const int64_t at = token * output.out_stride + column;
  if (output.out_float32) {
    static_cast<float*>(output.out)[at] = v;
  } else {
    static_cast<T*>(output.out)[at] = FromFloat<T>(v);
  }
}

// Stores output `column`: of a gated product from the accumulators of a gate and its
// up, of a plain one from the first alone.
template <typename T>
TLM_DEVICE void StoreActivated(const GemmOutput& output, bool gated, int64_t token, int64_t column,
                               float accumulator, float up) {
  const float v = Biased<T>(output, accumulator, column);
  float activated = Activated(gated ? GemmActivation::kSilu : output.activation, v);
  if (gated) activated = activated * Biased<T>(output, up, output.up_bias + column);
  Store<T>(output, token, column, activated);
}

// Neighbouring outputs that StoreRounded stores; their first column is a multiple of it.
inline constexpr int kStoreRun = 4;

// Whether all runs of `output` can be stored at once.
template <typename T>
TLM_DEVICE bool StoresRuns(const GemmOutput& output) {
  const uintptr_t bytes = kStoreRun * (output.out_float32 ? sizeof(float) : sizeof(T));
  return reinterpret_cast<uintptr_t>(output.out) % bytes == 0 && output.out_stride % kStoreRun == 0;
}

// Stores the first `count` outputs of a run, of a plain product without an activation. wide:
// StoresRuns, and there are kStoreRun.
template <typename T>
TLM_DEVICE void StoreRounded(const GemmOutput& output, int64_t token, int64_t column, int count,
                             const Quad& accumulators, bool wide) {
  float v[kStoreRun];
#pragma unroll
  for (int i = 0; i < kStoreRun; ++i) {
    const float accumulator = FloatOfBits(accumulators.word[i]);
    v[i] = i < count ? Biased<T>(output, accumulator, column + i) : 0.0f;
  }
  if (!wide) {
#pragma unroll
    for (int i = 0; i < kStoreRun; ++i) {
      if (i < count) Store<T>(output, token, column + i, v[i]);
    }
    return;
  }
  const int64_t at = token * output.out_stride + column;
  if constexpr (sizeof(T) == 2) {
    if (!output.out_float32) {
      StorePair(static_cast<T*>(output.out) + at,
                {{PackPair<T>(v[0], v[1]), PackPair<T>(v[2], v[3])}});
      return;
    }
  }
  StoreQuad(static_cast<float*>(output.out) + at,
            {{FloatBits(v[0]), FloatBits(v[1]), FloatBits(v[2]), FloatBits(v[3])}});
}

// A block's outputs on their way from its threads' registers.
struct StagedSums {
  const float* sums;  // in shared memory
  int first_row;      // of the product's weights, as the tile has them
  int first_token;
  int round;
};

// The epilogue of staged sums, all threads: to outputs. Code, not time, is what it is sparing of:
// activations are long, and stand here once, in a loop over single outputs; sums that are only
// rounded go four at a time.
//
// Area says where they are: kRows rows of kTokens tokens, At(token, row) the place of a sum, a
// multiple of 4 for every fourth row, TileRow(round, row) its row of the tile; gated: kGates gates,
// then their ups, and so on.
template <typename T, typename Area, int kThreads>
TLM_DEVICE void StoreStaged(const GemmArgs& args, const StagedSums& staged) {
  const GemmOutput& output = args.output;
  const int left = static_cast<int>(args.m) - staged.first_token;
  const int tokens = left < Area::kTokens ? left : Area::kTokens;
  const bool gated = args.gated;
  const int columns = static_cast<int>(args.n) >> (gated ? 1 : 0);
  if (gated || output.activation != GemmActivation::kNone) {
    const int token_outputs = Area::kRows >> (gated ? 1 : 0);
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < tokens * token_outputs; i += kThreads) {
      const int token = gated ? i / (Area::kRows / 2) : i / Area::kRows;
      const int at = i - token * token_outputs;
      const int row = gated ? at + at / Area::kGates * Area::kGates : at;
      const int tile_row = staged.first_row + Area::TileRow(staged.round, row);
      const int gates = tile_row / (2 * Area::kGates) * Area::kGates;
      const int column = gated ? gates + tile_row % Area::kGates : tile_row;
      if (column >= columns) continue;
      const float up = gated ? staged.sums[Area::At(token, row + Area::kGates)] : 0.0f;
      StoreActivated<T>(output, gated, staged.first_token + token, column,
                        staged.sums[Area::At(token, row)], up);
    }
    return;
  }
  constexpr int kRuns = Area::kRows / kStoreRun;
  const bool wide = StoresRuns<T>(output);
// Once where a tile's sums take nearly all registers.
#pragma unroll(Area::kTokens <= 64 ? 2 : 1)
  for (int i = static_cast<int>(threadIdx.x); i < tokens * kRuns; i += kThreads) {
    const int token = i / kRuns;
    const int row = i % kRuns * kStoreRun;
    const int column = staged.first_row + Area::TileRow(staged.round, row);
    const int count = columns - column;
    if (count <= 0) continue;
    StoreRounded<T>(output, staged.first_token + token, column, count,
                    LoadQuad(staged.sums + Area::At(token, row)), wide && count >= kStoreRun);
  }
}

// Stored row of a gated matrix [n, ..] that belongs at place `within` (< 32: 16 gates, then 16 ups)
// of group `group`; -1: that place is empty, of a last group that is narrower.
TLM_HOST_DEVICE int64_t GatedRow(int64_t n, int64_t group, int within) {
  const int64_t first = group * kGateGroup;
  const int64_t left = n / 2 - first;
  const int width = left < kGateGroup ? static_cast<int>(left) : kGateGroup;
  const int index = within % kGateGroup;
  if (index >= width) return -1;
  return 2 * first + (within < kGateGroup ? index : width + index);
}

}  // namespace tlm::simt

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_GEMM_EPILOGUE_H_
