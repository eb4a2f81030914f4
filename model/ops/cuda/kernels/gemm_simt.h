// Matrix products without tensor cores: fp32, and 16-bit weights whose shape these cannot take.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_GEMM_SIMT_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_GEMM_SIMT_H_

#include <cuda_runtime.h>

#include "model/ops/cuda/kernels/gemm_args.h"
#include "model/tensor/dtype.h"

namespace tlm {

// Lets the kernels have their shared memory; once on a device, before the first launch.
cudaError_t PrepareGemmSimt();

// A block for each of row_tiles * token_tiles tiles `tile` of kSimtTiles. Every output is one fp32
// chain, acc = fma(w[n, i], x[m, i], acc) for i = 0, 1, ... from acc = 0, whatever the tile. dtype
// kF32, kBF16 or kF16, of x and w; x may lie anywhere; what follows k in w's rows, up to a multiple
// of 16 bytes, is zero. Bytes: the weights once for each token tile, x once for each row tile, the
// outputs.
cudaError_t LaunchGemmSimt(const GemmArgs& args, DType dtype, int tile, cudaStream_t stream);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_GEMM_SIMT_H_
