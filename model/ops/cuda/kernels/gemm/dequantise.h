// Converts weights in blocks to bfloat16: whole matrices for products, single rows for embeddings.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_GEMM_DEQUANTISE_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_GEMM_DEQUANTISE_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "model/ops/cuda/kernels/gemm/block_format.h"

namespace tlm {

// Loads the kernels for matrices of a format. Call it before the first launch.
cudaError_t LoadDequantise(const StripFormat& format);

// out[r - first_row] = row r of the matrix, for r in [first_row, first_row + rows): the elements as
// model/tensor/blocks.h defines them, computed in float32 and rounded to bfloat16; zeros from k to
// out_stride. Bytes: the rows' strips are read, 2 * rows * out_stride written.
struct DequantiseArgs {
  BlockMatrixArgs matrix;
  int32_t first_row = 0;
  int32_t rows = 0;
  void* out = nullptr;     // bfloat16, 16-byte aligned
  int32_t out_stride = 0;  // elements; k rounded up to a multiple of 8
};
cudaError_t LaunchDequantise(const DequantiseArgs& args, cudaStream_t stream);

// out[t] = the row that `rows` names, in float32, with the same bfloat16 values; added to out[t]
// with `adds`. A row below 0 means others[-1 - row], or row 0 without `others`. May begin a batch,
// like LaunchEmbed.
struct EmbedBlocksArgs {
  BlockMatrixArgs table;
  const int32_t* rows = nullptr;  // [tokens]
  const int32_t* others = nullptr;
  bool adds = false;
  int64_t tokens = 0;
  float* out = nullptr;  // [tokens, k]
  int64_t out_stride = 0;
};
cudaError_t LaunchEmbedBlocks(const EmbedBlocksArgs& args, cudaStream_t stream);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_GEMM_DEQUANTISE_H_
