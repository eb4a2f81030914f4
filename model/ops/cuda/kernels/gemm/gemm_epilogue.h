// Converts accumulators to outputs, as GemmOutput specifies. Included by kernels only.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_GEMM_GEMM_EPILOGUE_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_GEMM_GEMM_EPILOGUE_H_

#include <cstdint>

#include "model/ops/cuda/kernels/gemm/activations.h"
#include "model/ops/cuda/kernels/gemm/gemm_kernels.h"
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

// Returns v of `column`, before the activation.
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

// Neighbouring outputs that a thread stores at once; their first column is a multiple of it.
inline constexpr int kStoreRun = 4;

// Whether all runs of `output` can be stored at once.
template <typename T>
TLM_DEVICE bool StoresRuns(const GemmOutput& output) {
  const uintptr_t bytes = kStoreRun * (output.out_float32 ? sizeof(float) : sizeof(T));
  return reinterpret_cast<uintptr_t>(output.out) % bytes == 0 && output.out_stride % kStoreRun == 0;
}

// The values of a run of columns before the activation; the first `count` of them exist.
template <typename T>
TLM_DEVICE void BiasedRun(const GemmOutput& output, const float* accumulators, int64_t column,
                          int count, float (&v)[kStoreRun]) {
  const Quad quad = LoadQuad(accumulators);
#pragma unroll
  for (int i = 0; i < kStoreRun; ++i) v[i] = RoundOutput<T>(output, FloatOfBits(quad.word[i]));
  if (output.bias == nullptr) return;
#pragma unroll
  for (int i = 0; i < kStoreRun; ++i) {
    if (i < count) v[i] = RoundOutput<T>(output, v[i] + output.bias[column + i]);
  }
}

// Stores the first `count` outputs of a run. wide: StoresRuns holds, and count is kStoreRun.
template <typename T>
TLM_DEVICE void StoreOutputs(const GemmOutput& output, int64_t token, int64_t column, int count,
                             bool wide, const float (&v)[kStoreRun]) {
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

// A block's outputs between its threads' registers and the output.
struct StagedSums {
  const float* sums;  // in shared memory
  int first_row;      // row of the product's weights, in the tile's numbering
  int first_token;
  int round;
};

// The epilogue of staged sums, by all threads, in runs of outputs. Only long activations use a loop
// over single outputs, with one copy of their code: that saves code, not time.
//
// Area gives the places: kRows rows of kTokens tokens, At(token, row) the place of a sum, a
// multiple of 4 for every fourth row, TileRow(round, row) its row of the tile; gated: kGates gates,
// then their ups, and so on.
template <typename T, typename Area, int kThreads>
TLM_DEVICE void StoreStaged(const GemmArgs& args, const StagedSums& staged) {
  const GemmOutput& output = args.output;
  const int left = static_cast<int>(args.m) - staged.first_token;
  const int tokens = left < Area::kTokens ? left : Area::kTokens;
  const int columns = static_cast<int>(args.n) >> (args.gated ? 1 : 0);
  const bool wide = StoresRuns<T>(output);
  if (args.gated) {
    constexpr int kRuns = Area::kRows / 2 / kStoreRun;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < tokens * kRuns; i += kThreads) {
      const int token = i / kRuns;
      const int at = i % kRuns * kStoreRun;
      const int row = at + at / Area::kGates * Area::kGates;
      const int tile_row = staged.first_row + Area::TileRow(staged.round, row);
      const int column = tile_row / (2 * Area::kGates) * Area::kGates + tile_row % Area::kGates;
      const int count = columns - column;
      if (count <= 0) continue;
      float gates[kStoreRun];
      float v[kStoreRun];
      BiasedRun<T>(output, staged.sums + Area::At(token, row), column, count, gates);
      BiasedRun<T>(output, staged.sums + Area::At(token, row + Area::kGates),
                   output.up_bias + column, count, v);
#pragma unroll
      for (int j = 0; j < kStoreRun; ++j) v[j] = Silu(gates[j]) * v[j];
      StoreOutputs<T>(output, staged.first_token + token, column, count, wide && count >= kStoreRun,
                      v);
    }
    return;
  }
  if (output.activation != GemmActivation::kNone) {
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < tokens * Area::kRows; i += kThreads) {
      const int token = i / Area::kRows;
      const int row = i % Area::kRows;
      const int column = staged.first_row + Area::TileRow(staged.round, row);
      if (column >= columns) continue;
      const float v = Biased<T>(output, staged.sums[Area::At(token, row)], column);
      Store<T>(output, staged.first_token + token, column, Activated(output.activation, v));
    }
    return;
  }
  constexpr int kRuns = Area::kRows / kStoreRun;
// Unrolled once if a tile's sums take nearly all registers.
#pragma unroll(Area::kTokens <= 64 ? 2 : 1)
  for (int i = static_cast<int>(threadIdx.x); i < tokens * kRuns; i += kThreads) {
    const int token = i / kRuns;
    const int row = i % kRuns * kStoreRun;
    const int column = staged.first_row + Area::TileRow(staged.round, row);
    const int count = columns - column;
    if (count <= 0) continue;
    float v[kStoreRun];
    BiasedRun<T>(output, staged.sums + Area::At(token, row), column, count, v);
    StoreOutputs<T>(output, staged.first_token + token, column, count, wide && count >= kStoreRun,
                    v);
  }
}

// Returns the stored row of a gated matrix [n, ..] at place `within` (< 32: 16 gates, then 16 ups)
// of group `group`; -1 for an empty place in a narrower last group.
TLM_HOST_DEVICE int64_t GatedRow(int64_t n, int64_t group, int within) {
  const int64_t first = group * kGateGroup;
  const int64_t left = n / 2 - first;
  const int width = left < kGateGroup ? static_cast<int>(left) : kGateGroup;
  const int index = within % kGateGroup;
  if (index >= width) return -1;
  return 2 * first + (within < kGateGroup ? index : width + index);
}

}  // namespace tlm::simt

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_GEMM_GEMM_EPILOGUE_H_
