// Causal attention over a paged cache, one kernel for prefill and decode.
//
// For query row i at position p, over the key tiles t = 0, 1, .. of 64 positions it sees, in order:
//   s[j] = sum over d of q[i, d] k[j, d]                           float32, d ascending by 16
//   m_t = max s[j],  w[j] = 2^((s[j] - m_t) scale log2 e),  l_t = sum w[j]
//   O_t[d] = sum over j of w[j] v[j, d]                            from zero, j ascending by 16
//   M' = max(M, m_t), keep = 2^((M - M') scale log2 e), add = 2^((m_t - M') scale log2 e)
//   l = fma(l_t, add, l keep),  O = fma(O_t, add, O keep),  M = M'
//   out[i] = O (1 / l)
// j runs over positions <= p, with a window over the last `window` of them; w[j] is rounded to the
// activation type for O_t alone (Dao 2023, FlashAttention-2, with the running rescale taken out of
// the tile). A tile's partial (m_t, l_t, O_t) depends on nothing but the row, its keys and values,
// and the fold's order is fixed: chunks, decode, cache hits and splits of the work agree bit for
// bit. This stands on one property of the tensor cores: a product with a factor of zero leaves the
// other products' rounding alone, whatever its other factor.
//
// Two kernels, chosen by what never changes in a model's life (attention_plan.h): on tensor cores
// for 16-bit types and head_dim 64, 80, 96, 128, 256 (attention_mma.h has a map of it); plain
// arithmetic for all others.
//
// What is read: positions beyond a query tile's last one, or before its window, never. Within the
// tile a later token's non-finite value reaches earlier rows of its own sequence on tensor cores
// (0 * inf), not in plain arithmetic. Other sequences' rows never mix.
//
// What it should take. All estimates of November 2026, from the machine code and from rates of an
// H200 that were not measured either: 132 multiprocessors at 1.755 GHz, 4.3 TB/s read, 64 B a cycle
// and multiprocessor from L2 at a latency of 700 cycles. head_dim 128 in 16 bits:
//
//   decode      A tile is 32 KiB, read once for all rows of its query tile, and costs a warp about
//               320 instructions, 460 where rows are more than 8. Two blocks a multiprocessor have
//               some 80 KiB on their way, where 28 KiB would do for 1,500 cycles of latency: a tile
//               arrives every 1,760 cycles, the memory decides. Batch 64 and 256 at 1k context, 8
//               kv heads: 268 MB and 1.07 GB a layer, queries, outputs and partials 2 % more; about
//               87 % of read bandwidth.
//   prefill     A warp issues about 1,050 instructions a tile of 64 positions for 128 mma, 1,110 in
//               tiles that raise a row's maximum; some 490 are the softmax. Two warps a scheduler
//               are bound by issue: at most 460 TFLOP/s, 280 to 330 expected. Heads of 256 columns:
//               half the rows for a tile of 64 KiB.
//   split-KV    A split costs a record of (head_dim + 2) * 4 bytes a row and tile, written and
//               read: with a group of 4 rows 2 KiB beside the tile's 32 KiB, and only for tiles
//               outside the prefix; the planner splits at most one item a block. The block that
//               folds an item's records takes 45 cycles each: 0.8, 4 and 14 us a layer for one
//               sequence of 1k, 8k and 32k positions, of which the next kernel's first weights hide
//               up to 5. That is the 2 KiB of a record at what one block has on its way, and 33
//               cycles at what a multiprocessor can take; the chain of roundings is 8. A second
//               kernel on rows and columns apart, of steps of few tokens, would take 11 a record
//               and 1.5 us: 1.6, 2.2 and 4.3 us, where ticket and fold are 1.9, 5 and 15 today. A
//               tree of segments is another order of folding.
//   8 bits      head_dim + 1 bytes a key or value: 1.98 times as many tokens fit, a tile is 16.1
//               KiB, of which one arrives every 890 cycles. A decode tile costs a warp about 590
//               instructions in bfloat16, of which 256 widen (8 for four elements), and 500 in
//               float16, where the hardware converts (5). Each scheduler issues those of one warp a
//               tile: at 0.6 to 0.7 a cycle, 840 to 980 cycles and 710 to 830. So memory and issue
//               are about even, and decode takes 0.50 to 0.56 times the time of 16 bits in
//               bfloat16, 0.50 in float16; of 9 to 16 rows (730 and 640 instructions) 0.59 to 0.69
//               and 0.52 to 0.60. Before 8.9 float16 is as bfloat16. Prefill: 1,420 instructions a
//               tile for 1,050, 1.3 to 1.4 times; 1,320 in float16.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "model/tensor/dtype.h"

namespace tlm {

// Read before WaitForPrevious: `work` and block_tables, which are copied to the device before the
// stream's first kernel of a batch begins and which no kernel writes; and keys and values of
// positions below AttentionUnit::stored, which kernels of earlier batches wrote. This kernel may
// begin while several before it still run, but none of an earlier batch does: a batch's first
// kernel overlaps none (embed.h).
struct AttentionArgs {
  const void* q = nullptr;  // [tokens, num_kv_heads * group * head_dim] of the activation type
  int64_t q_stride = 0;     // elements
  void* out = nullptr;      // as q; rows of tokens without work are not written
  int64_t out_stride = 0;
  const void* cache = nullptr;  // [blocks][layers][K, V][num_kv_heads][64][head_dim], from block 0
                                // of the layer; or pages of fp8_rows.h
  const int32_t* block_tables = nullptr;  // from AttentionUnit::table on, ids of blocks
  int32_t layers = 1;                     // of a block
  int32_t num_kv_heads = 0;
  int32_t group = 0;  // query heads of a kv head
  int32_t head_dim = 0;
  int64_t window = 0;  // 0: none; if not 0, the work was planned with 0 or as large a window
  float scale = 0.0f;  // above 0
  int32_t blocks = 0;  // of the grid, as the work was planned for
  const void* work = nullptr;  // AttentionPlanner::Plan's, 16-byte aligned
  // Scratch of AttentionPlanner::scratch. Tickets are 0 before a launch and after it.
  uint32_t* tickets = nullptr;
  float* partial_stats = nullptr;   // [partial rows][2]: m, l
  float* partial_values = nullptr;  // [partial rows][head_dim]
  bool fp8 = false;                 // the cache is in 8 bits, else of the activation type
};

// Loads the kernel of such heads and cache and lets it have its shared memory; once on every
// device, before its first launch. activations: kF32, kBF16 or kF16; `mma` only of 16 bits and
// where HasMmaAttention. cudaErrorInvalidValue for others, and where the device has not as much
// memory.
cudaError_t LoadAttention(DType activations, int64_t head_dim, bool fp8, bool mma);

// Of what has been loaded.
cudaError_t LaunchAttention(const AttentionArgs& args, DType activations, bool mma,
                            cudaStream_t stream);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_H_
