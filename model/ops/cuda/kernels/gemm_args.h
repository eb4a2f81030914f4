// Arguments of the matrix kernels.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_GEMM_ARGS_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_GEMM_ARGS_H_

#include <cstdint>

namespace tlm {

enum class GemmActivation : int32_t { kNone, kSilu, kRelu, kGeluTanh, kGelu };

// What becomes of an accumulator a, T being the type of x, or fp32 with out_float32:
//   v = T(a);  v = T(v + bias);  v = T(activation(v));  out = v, or T(silu(v_gate) * v_up)
struct GemmOutput {
  void* out = nullptr;  // of T
  int64_t out_stride = 0;
  bool out_float32 = false;
  const float* bias = nullptr;                        // by output; gated: [gates, ups]. Null: none
  GemmActivation activation = GemmActivation::kNone;  // not of a gated product
};

// out[m, n] = x[m, k] w[n, k]^T. x, w of one type. Gated: w's rows are interleaved as MatrixLayout
// says, 16 gates and their 16 ups, and out is [m, n / 2].
struct GemmArgs {
  const void* x = nullptr;
  int64_t x_stride = 0;
  int64_t m = 0;
  const void* w = nullptr;  // rows 16-byte aligned
  int64_t w_stride = 0;
  int64_t n = 0;
  int64_t k = 0;
  bool gated = false;
  GemmOutput output;
  int32_t row_tiles = 0;    // covering n
  int32_t token_tiles = 0;  // covering m; their product is an int, too
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_GEMM_ARGS_H_
