// Kernels that show whether two ways to compute a matrix product have the same bits.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_GEMM_GEMM_PROBE_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_GEMM_GEMM_PROBE_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "model/tensor/dtype.h"

namespace tlm {

// Fills data [rows, cols] of kBF16 or kF16 with numbers of magnitudes 2^-7 to 2, with random signs
// and digits. In rows whose number is a multiple of `cancelling_rows`, element i of the second half
// of the columns is element i of the first half times `second_half`. If that is 1 for x and -1 for
// w, the exact products are 0. Then only the rounding errors of the partial sums are left, so any
// other order of summation shows in nearly every output.
struct ProbeFillArgs {
  void* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
  uint32_t seed = 0;
  int32_t cancelling_rows = 1;
  float second_half = 1.0f;
};
cudaError_t LaunchProbeFill(const ProbeFillArgs& args, DType dtype, cudaStream_t stream);

// Fills x [m, k] and w [n, k], so that half of the sums of x w^T cancel, which shows every
// intermediate rounding, and half grow, which shows the bits that are lost at the end.
struct ProbeInputs {
  void* x = nullptr;
  void* w = nullptr;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  int64_t w_stride = 0;
};
cudaError_t LaunchProbeInputs(const ProbeInputs& inputs, DType dtype, cudaStream_t stream);

// Adds to *differences the number of 16-bit words in which a [rows, words] and b differ.
struct ProbeCompareArgs {
  const void* a = nullptr;
  const void* b = nullptr;
  int64_t rows = 0;
  int64_t words = 0;
  int64_t a_stride = 0;  // words
  int64_t b_stride = 0;
  uint32_t* differences = nullptr;  // device memory
};
cudaError_t LaunchProbeCompare(const ProbeCompareArgs& args, cudaStream_t stream);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_GEMM_GEMM_PROBE_H_
