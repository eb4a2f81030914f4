// Embedding: sets the residual stream to rows of the token table, plus rows of a table of
// positions.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_EMBED_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_EMBED_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "model/tensor/dtype.h"

namespace tlm {

// Row-major, in device memory, stored as float32, bfloat16 or float16.
struct EmbeddingTable {
  const void* data = nullptr;  // null: no table
  DType dtype = DType::kF32;
  int64_t stride = 0;  // elements between rows, >= dim
};

// out[t] = tokens_table[id of t] + positions_table[positions[t]], in float32. A token id below 0
// means sampled[-1 - id]. Padding tokens (position -1) take row 0 of the second table. One of the
// tables may be missing. Bytes: tokens * dim * (element + 4), and again for the second table.
struct EmbedArgs {
  EmbeddingTable tokens_table;         // [vocab_size, dim]
  EmbeddingTable positions_table;      // [context_length, dim]
  const int32_t* token_ids = nullptr;  // [tokens]
  const int32_t* sampled = nullptr;    // tokens that the previous batch sampled
  const int32_t* positions = nullptr;  // [tokens]; only with positions_table
  int64_t tokens = 0;
  int64_t dim = 0;
  float* out = nullptr;  // [tokens, dim]
  int64_t out_stride = 0;
};

// Loads the kernel. Call it once on each device, before the first launch.
cudaError_t LoadEmbed();
// Begins a batch: it overlaps no earlier kernel, so that all other kernels of the batch may read
// data of earlier batches before they wait.
cudaError_t LaunchEmbed(const EmbedArgs& args, cudaStream_t stream);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_EMBED_H_
