// Adds to the residual stream and normalises, in one pass over a row.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_ADD_NORM_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_ADD_NORM_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "model/tensor/dtype.h"

namespace tlm {

// For every row r, with s = gather == null ? r : gather[r] and v = x[s] + delta[s]:
//   x[s] = v (only without gather)
//   out[r] = v * scale * gain                      scale = 1 / sqrt(mean(v^2) + eps), or
//   out[r] = (v - mean(v)) * scale * gain + bias   with the variance in place of mean(v^2)
// or scale = 1 / (sqrt(..) + eps). Sums are float32, in an order that depends only on `dim`. Bytes:
// rows * dim * (4 + 4 + 2 + 2) for 16-bit activations.
struct AddNormArgs {
  float* x = nullptr;  // [.., dim]
  int64_t x_stride = 0;
  const void* delta = nullptr;  // [.., dim] of the activation type; null: 0
  int64_t delta_stride = 0;
  const int32_t* gather = nullptr;  // [rows] or null
  const float* gain = nullptr;      // [dim]
  const float* bias = nullptr;      // [dim]; null: the RMS norm
  float eps = 0.0f;
  bool eps_outside_root = false;
  void* out = nullptr;  // [rows, dim] of the activation type
  int64_t out_stride = 0;
  int64_t rows = 0;
  int64_t dim = 0;
};

// Loads the kernels of a type, kF32, kBF16 or kF16. Call it before the first launch.
cudaError_t LoadAddNorm(DType activations);
cudaError_t LaunchAddNorm(const AddNormArgs& args, DType activations, cudaStream_t stream);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_ADD_NORM_H_
