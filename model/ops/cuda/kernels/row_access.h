// Loads and stores runs of eight elements of any stored type as floats. Included by kernels only.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_ROW_ACCESS_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_ROW_ACCESS_H_

#include <cstddef>
#include <cstdint>

#include "model/ops/cuda/kernels/simt.h"
#include "model/tensor/dtype.h"

namespace tlm {

// Elements per run: 16 bytes of a 16-bit type.
inline constexpr int kRun = 8;

// Whether every run of rows that begin at `data`, `stride` elements apart, can be moved in 16-byte
// accesses.
inline bool RunsAreAligned(const void* data, int64_t stride) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % kRun == 0;
}

namespace simt {

// Moves 16 bytes of any element type as a Quad. Not a copy of bytes: nvcc makes that sixteen
// accesses wherever it cannot see the alignment.
struct [[gnu::may_alias]] alignas(16) AnyQuad {
  uint32_t word[4];
};
TLM_DEVICE Quad LoadQuad(const void* from) {
  const AnyQuad any = *static_cast<const AnyQuad*>(from);
  return {{any.word[0], any.word[1], any.word[2], any.word[3]}};
}
TLM_DEVICE void StoreQuad(void* to, const Quad& quad) {
  *static_cast<AnyQuad*>(to) = {{quad.word[0], quad.word[1], quad.word[2], quad.word[3]}};
}

// 8 bytes, 8-byte aligned.
struct [[gnu::may_alias]] alignas(8) AnyPair {
  uint32_t word[2];
};
TLM_DEVICE void StorePair(void* to, const AnyPair& pair) { *static_cast<AnyPair*>(to) = pair; }

// Walks rows of `columns` items each, one row after the other: first item `index`, then every
// `step`-th one. Costs one 32-bit division in all.
struct RowWalk {
  int64_t rows;
  uint32_t columns;
  int64_t row;
  uint32_t column;
  uint32_t row_step;
  uint32_t column_step;

  TLM_DEVICE RowWalk(int64_t all_rows, int64_t row_columns, uint32_t index, uint32_t step)
      : rows(all_rows),
        columns(static_cast<uint32_t>(row_columns)),
        row(index / columns),
        column(index % columns),
        row_step(step / columns),
        column_step(step % columns) {}
  TLM_DEVICE bool Done() const { return row >= rows; }
  TLM_DEVICE void Next() {
    row += row_step;
    column += column_step;
    if (column < columns) return;
    column -= columns;
    ++row;
  }
};

TLM_DEVICE void UnpackQuads(const Quad (&quads)[2], float (&out)[kRun]) {
#pragma unroll
  for (int i = 0; i < kRun; ++i) out[i] = FloatOfBits(quads[i / 4].word[i % 4]);
}

// Loads at[0], ..., at[7]. `wide`: at is 16-byte aligned and all eight exist. Otherwise elements
// from `count` on do not exist and become 0.
template <typename T>
TLM_DEVICE void LoadRun(const T* at, int64_t count, bool wide, float (&out)[kRun]) {
  if (!wide) {
#pragma unroll
    for (int i = 0; i < kRun; ++i) out[i] = i < count ? ToFloat(at[i]) : 0.0f;
  } else if constexpr (sizeof(T) == 4) {
    const Quad quads[2] = {LoadQuad(at), LoadQuad(at + 4)};
    UnpackQuads(quads, out);
  } else {
    const Quad quad = LoadQuad(at);
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      out[i] = ToFloat(T{static_cast<uint16_t>(quad.word[i / 2] >> (16 * (i % 2)))});
    }
  }
}

// Rounds each value once. `count` and `wide` are as above.
template <typename T>
TLM_DEVICE void StoreRun(T* at, int64_t count, bool wide, const float (&values)[kRun]) {
  if (!wide) {
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      if (i < count) at[i] = FromFloat<T>(values[i]);
    }
  } else if constexpr (sizeof(T) == 4) {
    Quad quads[2];
#pragma unroll
    for (int i = 0; i < kRun; ++i) quads[i / 4].word[i % 4] = FloatBits(values[i]);
    StoreQuad(at, quads[0]);
    StoreQuad(at + 4, quads[1]);
  } else {
    Quad quad;
#pragma unroll
    for (int i = 0; i < kRun; i += 2) quad.word[i / 2] = PackPair<T>(values[i], values[i + 1]);
    StoreQuad(at, quad);
  }
}

// LoadRun of elements [index, index + 8) of an array stored as `dtype`.
TLM_DEVICE void LoadRunOf(DType dtype, const void* array, int64_t index, int64_t count, bool wide,
                          float (&out)[kRun]) {
  if (dtype == DType::kF32) {
    LoadRun(static_cast<const float*>(array) + index, count, wide, out);
  } else if (dtype == DType::kBF16) {
    LoadRun(static_cast<const Bf16*>(array) + index, count, wide, out);
  } else {
    LoadRun(static_cast<const F16*>(array) + index, count, wide, out);
  }
}

}  // namespace simt
}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_ROW_ACCESS_H_
