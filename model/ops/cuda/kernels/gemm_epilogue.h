// What is done to a finished product that no kernel of ours made: element by element, with the
// roundings of the kernels that do it at once.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_GEMM_EPILOGUE_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_GEMM_EPILOGUE_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "model/ops/cuda/kernels/gemm_args.h"
#include "model/tensor/dtype.h"

namespace tlm {

// Loads the kernels; once on a device, before the first launch.
cudaError_t LoadGemmEpilogue();

// output.out [m, n], which holds accumulators rounded to its type, becomes what GemmOutput says.
// dtype: of x. Bytes: m n elements read and written.
struct FinishArgs {
  GemmOutput output;
  int64_t m = 0;
  int64_t n = 0;
};
cudaError_t LaunchFinish(const FinishArgs& args, DType dtype, cudaStream_t stream);

// output.out [m, n / 2] from gate_up [m, n], accumulators rounded to `dtype`, columns in the order
// of a gated matrix's rows. Bytes: m n elements read, half as many written.
struct SwiGluArgs {
  const void* gate_up = nullptr;
  int64_t gate_up_stride = 0;
  GemmOutput output;
  int64_t m = 0;
  int64_t n = 0;
};
cudaError_t LaunchSwiGlu(const SwiGluArgs& args, DType dtype, cudaStream_t stream);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_GEMM_EPILOGUE_H_
