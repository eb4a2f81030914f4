// Matrix products of few rows, bound by the bytes of the weights.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_GEMM_SKINNY_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_GEMM_SKINNY_H_

#include <cuda_runtime.h>

#include "model/ops/cuda/kernels/gemm_args.h"
#include "model/tensor/dtype.h"

namespace tlm {

// Lets the kernels have their shared memory; once on a device, before the first launch.
cudaError_t PrepareGemmSkinny();

// `grid` blocks of tile `tile` of kMmaTiles, not the tiled kernel's; one of 32 rows or more for a
// gated product. dtype kBF16 or kF16, of x and w; x, w and k in pieces of 16 bytes. Bytes: the
// weights once, x once for each row tile (from the L2 cache), the outputs.
cudaError_t LaunchGemmSkinny(const GemmArgs& args, DType dtype, int tile, int grid,
                             cudaStream_t stream);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_GEMM_SKINNY_H_
