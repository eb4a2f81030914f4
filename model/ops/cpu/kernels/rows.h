// Row-wise operations on one thread; kernels.h describes what all kernels share.
#ifndef TLM_MODEL_OPS_CPU_KERNELS_ROWS_H_
#define TLM_MODEL_OPS_CPU_KERNELS_ROWS_H_

#include <cstdint>

#include "model/ops/cpu/kernels/storage.h"

namespace tlm {

// out = norm(x + delta); see Norm in ops.h for the formulas.
struct AddNormArgs {
  const float* x = nullptr;      // [n]
  const void* delta = nullptr;   // [n]; null: 0
  Storage type = Storage::kF32;  // type of delta and out; kF32 or kBF16
  float* sum = nullptr;          // receives x + delta (may be x); null: not stored
  int64_t n = 0;
  const float* gain = nullptr;  // [n]
  const float* bias = nullptr;  // [n]; only for a layer norm
  bool layer = false;           // a layer norm, else RMS
  float eps = 0.0f;
  bool eps_outside_root = false;
  void* out = nullptr;  // [n]; not x
};

// The largest number of elements in a head.
inline constexpr int kMaxHeadElements = 1024;

// Transforms a token's consecutive heads in place, as HeadTransform in ops.h specifies.
struct HeadsArgs {
  void* heads = nullptr;         // [count, head_dim]
  Storage type = Storage::kF32;  // or kBF16: rounded once, at the end
  int64_t count = 0;
  int64_t head_dim = 0;         // at most kMaxHeadElements
  const float* gain = nullptr;  // [head_dim]; null: not normalised
  float eps = 0.0f;
  bool eps_outside_root = false;
  const float* angles = nullptr;  // [head_dim / 2] pairs of cosine and sine; null: not rotated
  bool interleaved = false;       // pairs are (2i, 2i + 1), else (i, i + head_dim / 2)
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_KERNELS_ROWS_H_
