// Turns the fused QKV product into the inputs of attention: normalises and rotates heads, and
// stores keys and values in the paged cache.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_PREPARE_ATTENTION_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_PREPARE_ATTENTION_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "model/tensor/dtype.h"

namespace tlm {

// For every token at a position p >= 0 and every head h of queries and keys, in float32:
//   h' = h * scale * gain, scale = 1 / sqrt(mean(h^2) + eps) or 1 / (sqrt(..) + eps)   with gains
//   (a, b) -> (a cos - b sin, a sin + b cos) for its pairs                     with a RoPE table
// rounded once to the activation type. Queries stay in place. Keys and values go to the cache,
// [block][layer][K, V][kv_head], of [64][head_dim] of the activation type. In an fp8 cache they are
// pages of fp8_rows.h: the values rounded to the activation type first, then to E4M3 (like CpuOps).
// Gains, the table, positions, table_of and block_tables are read before WaitForPrevious: they are
// complete before the stream's first kernel of a batch, and no kernel writes them.
// tokens * (num_heads + 2 num_kv_heads) is below 2^31.
// Bytes: tokens * (2 num_heads + 4 num_kv_heads) * head_dim elements, and 4 * head_dim of angles.
struct PrepareAttentionArgs {
  void* qkv = nullptr;  // [tokens, (num_heads + 2 num_kv_heads) * head_dim]
  int64_t qkv_stride = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;           // at most 1024; even with a table
  const float* q_gain = nullptr;  // [head_dim]; null: heads are not normalised
  const float* k_gain = nullptr;  // [head_dim]; with q_gain
  float eps = 0.0f;
  bool eps_outside_root = false;
  // [positions, head_dim / 2] of (cos, sin), 8-byte aligned; null: no rotation.
  const float* rope_table = nullptr;
  bool interleaved = false;               // pairs (2i, 2i + 1), else (i, i + head_dim / 2)
  const int32_t* positions = nullptr;     // [tokens]; below 0: padding, ignored
  const int32_t* table_of = nullptr;      // [tokens]: index of the sequence's first block
  const int32_t* block_tables = nullptr;  // ids of blocks; table_of is an index into these
  void* cache = nullptr;                  // KV block 0 of the layer
  int32_t layers = 1;                     // per KV block
  int64_t tokens = 0;
  bool fp8 = false;  // the cache is in 8 bits
};

// Loads the kernel for this type, head_dim and cache. Call it before the first launch. activations:
// kF32, kBF16 or kF16.
cudaError_t LoadPrepareAttention(DType activations, int64_t head_dim, bool fp8);
cudaError_t LaunchPrepareAttention(const PrepareAttentionArgs& args, DType activations,
                                   cudaStream_t stream);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_PREPARE_ATTENTION_H_
