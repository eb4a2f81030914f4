// Matrix products of many rows on own kernels: for devices and weights a library may not be used
// for.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_GEMM_TILED_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_GEMM_TILED_H_

#include <cuda_runtime.h>

#include "model/ops/cuda/kernels/gemm_args.h"
#include "model/tensor/dtype.h"

namespace tlm {

// Lets the kernels have their shared memory; once on a device, before the first launch.
cudaError_t PrepareGemmTiled();

// As LaunchGemmSkinny, of tile kTiledMmaTile, with the same bits.
// Bytes: the weights once for each 128 tokens, x once for each 128 rows of weights, the outputs.
cudaError_t LaunchGemmTiled(const GemmArgs& args, DType dtype, int grid, cudaStream_t stream);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_GEMM_TILED_H_
