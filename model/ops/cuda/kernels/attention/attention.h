// Causal attention over a paged cache, one kernel for prefill and decode.
//
// For query row i at position p, over the key tiles t = 0, 1, .. of 64 positions it sees, in order:
//   s[j] = sum over d of q[i, d] k[j, d]                           float32, d ascending by 16
//   m_t = max s[j],  w[j] = 2^((s[j] - m_t) scale log2 e),  l_t = sum w[j]
//   O_t[d] = sum over j of w[j] v[j, d]                            from zero, j ascending by 16
//   M' = max(M, m_t), keep = 2^((M - M') scale log2 e), add = 2^((m_t - M') scale log2 e)
//   l = fma(l_t, add, l keep),  O = fma(O_t, add, O keep),  M = M'
//   out[i] = O (1 / l)
// j runs over positions <= p; with a window, over the last `window` of these. w[j] is rounded to
// the activation type only for O_t (Dao 2023, FlashAttention-2, with the running rescale moved out
// of the tile). A tile's partial (m_t, l_t, O_t) depends only on the row, its keys and its values,
// and the order of folding is fixed: chunks, decode, cache hits and splits of the work agree bit
// for bit. This relies on one property of the tensor cores: a product with a factor of zero does
// not change the rounding of the other products, whatever its other factor is.
//
// There are two kernels, chosen by constants of the model and the device (attention_plan.h): one on
// tensor cores for 16-bit types and head_dim 64, 80, 96, 128, 256 (attention_mma.h has a map of
// it), and one in plain arithmetic for all other cases.
//
// The kernels never read positions after a query tile's last one, or before its window. Within the
// tile, a later token's non-finite value reaches earlier rows of its own sequence on tensor cores
// (0 * inf), but not in plain arithmetic. Rows of other sequences never mix.
//
// Expected times. All are estimates of November 2026, from the machine code and from rates of an
// H200 that were not measured either: 132 multiprocessors at 1.755 GHz, 4.3 TB/s read, 64 B a cycle
// and multiprocessor from L2 at a latency of 700 cycles. head_dim 128 in 16 bits:
//
//   decode      A tile is 32 KiB, read once for all rows of its query tile, and costs a warp about
//               320 instructions, 460 with more than 8 rows. Two blocks of a multiprocessor have
//               some 80 KiB in flight, and 28 KiB would do for 1,500 cycles of latency. A tile
//               arrives every 1,760 cycles, so memory is the bound. Batch 64 and 256 at 1k context,
//               8 kv heads: 268 MB and 1.07 GB a layer, queries, outputs and partials 2 % more;
//               about 87 % of read bandwidth.
//   prefill     A warp issues about 1,050 instructions per tile of 64 positions for 128 mma, 1,110
//   in
//               tiles that raise a row's maximum; some 490 belong to the softmax. Two warps a
//               scheduler are bound by issue: at most 460 TFLOP/s, 280 to 330 expected. Heads of
//               256 columns have half the rows for a tile of 64 KiB.
//   split-KV    A split costs a record of (head_dim + 2) * 4 bytes per row and tile, written and
//               read: with a group of 4 rows 2 KiB for each tile of 32 KiB, and only for tiles
//               outside the prefix; the planner splits at most one item per block. The block that
//               folds an item's records takes 45 cycles each: 0.8, 4 and 14 us a layer for one
//               sequence of 1k, 8k and 32k positions, of which the next kernel's first weights hide
//               up to 5. The 45 cycles follow from the 2 KiB of a record and the bytes that one
//               block has in flight; a full multiprocessor could take 33 cycles; the chain of
//               roundings takes 8. A second kernel with threads on rows and columns, for steps of
//               few tokens, would take 11 cycles per record and 1.5 us: 1.6, 2.2 and 4.3 us, where
//               ticket and fold are 1.9, 5 and 15 today. A tree of segments would change the order
//               of folding.
//   8 bits      A key or value takes head_dim + 1 bytes: 1.98 times as many tokens fit. A tile is
//               16.1 KiB, and one arrives every 890 cycles. A decode tile costs a warp about 590
//               instructions in bfloat16, of which 256 widen (8 for four elements), and 500 in
//               float16, where the hardware converts (5). Each scheduler issues the instructions of
//               one warp per tile: at 0.6 to 0.7 a cycle, 840 to 980 cycles and 710 to 830. So
//               memory and issue are about even, and decode takes 0.50 to 0.56 times the time of 16
//               bits in bfloat16, 0.50 in float16; with 9 to 16 rows (730 and 640 instructions)
//               0.59 to 0.69 and 0.52 to 0.60. Before 8.9, float16 takes as long as bfloat16.
//               Prefill: 1,420 instructions per tile instead of 1,050, 1.3 to 1.4 times the time;
//               1,320 in float16.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_ATTENTION_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_ATTENTION_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "model/tensor/dtype.h"

namespace tlm {

// Data read before WaitForPrevious: `work` and block_tables, which are copied to the device before
// the stream's first kernel of a batch begins and which no kernel writes; and keys and values of
// positions below AttentionUnit::stored, which kernels of earlier batches wrote. This kernel may
// begin while several earlier kernels still run, but none of an earlier batch: a batch's first
// kernel overlaps no kernel (embed.h).
struct AttentionArgs {
  const void* q = nullptr;  // [tokens, num_kv_heads * group * head_dim] of the activation type
  int64_t q_stride = 0;     // elements
  void* out = nullptr;      // like q; rows of tokens without work are not written
  int64_t out_stride = 0;
  const void* cache = nullptr;  // [blocks][layers][K, V][num_kv_heads][64][head_dim], from block 0
                                // of the layer; or pages of fp8_rows.h
  const int32_t* block_tables = nullptr;  // ids of blocks; see AttentionUnit::table
  int32_t layers = 1;                     // layers per block
  int32_t num_kv_heads = 0;
  int32_t group = 0;  // query heads of a kv head
  int32_t head_dim = 0;
  int64_t window = 0;  // 0: no window; else the work was planned with 0 or at least this window
  float scale = 0.0f;  // above 0
  int32_t blocks = 0;  // blocks of the grid, as in the plan of the work
  const void* work = nullptr;  // from AttentionPlanner::Plan, 16-byte aligned
  // Scratch of AttentionPlanner::scratch. Tickets are 0 before a launch and after it.
  uint32_t* tickets = nullptr;
  float* partial_stats = nullptr;   // [partial rows][2]: m, l
  float* partial_values = nullptr;  // [partial rows][head_dim]
  bool fp8 = false;                 // the cache has 8 bits, else the activation type
};

// Loads the kernel for such heads and cache and requests its shared memory. Call it once on every
// device, before the first launch. activations: kF32, kBF16 or kF16; `mma` only with 16 bits and if
// HasMmaAttention. Returns cudaErrorInvalidValue for other arguments, and if the device has too
// little shared memory.
cudaError_t LoadAttention(DType activations, int64_t head_dim, bool fp8, bool mma);

// Launches a loaded kernel.
cudaError_t LaunchAttention(const AttentionArgs& args, DType activations, bool mma,
                            cudaStream_t stream);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_ATTENTION_H_
