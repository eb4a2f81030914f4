// Attention on one thread, and the layout of keys and values in a block; kernels.h describes what
// all kernels share.
#ifndef TLM_MODEL_OPS_CPU_KERNELS_ATTENTION_H_
#define TLM_MODEL_OPS_CPU_KERNELS_ATTENTION_H_

#include <cstdint>

#include "model/ops/cpu/kernels/storage.h"

namespace tlm {

// A block holds, for each kv head, keys and values of 64 tokens:
//   in pairs (InPairs)  keys [4][head_dim / 2][16 keys][2 d], values [32 pairs][head_dim][2 keys]
//   otherwise           keys [head_dim][64], values [64][head_dim]
// so that a vector spans keys when scores are computed, and elements of a value when values are
// weighed. In kF8 the keys are followed by their scales [64], and so are the values.
constexpr bool InPairs(Storage storage, int64_t head_dim) {
  return (storage == Storage::kBF16 || storage == Storage::kF8) && head_dim % 2 == 0;
}
// Returns the place of element d of key or value `slot` of a head.
constexpr int64_t KeyIndex(bool in_pairs, int64_t head_dim, int64_t slot, int64_t d) {
  return in_pairs ? ((slot / 16 * (head_dim / 2) + d / 2) * 16 + slot % 16) * 2 + d % 2
                  : d * 64 + slot;
}
constexpr int64_t ValueIndex(bool in_pairs, int64_t head_dim, int64_t slot, int64_t d) {
  return in_pairs ? (slot / 2 * head_dim + d) * 2 + slot % 2 : slot * head_dim + d;
}

// The attention of consecutive tokens of one sequence for some query heads of one kv head. A query
// of one token and one head is a row; rows are numbered token by token. All rows use a tile while
// it is in the cache; the result of a row does not depend on the others.
//
// Tile b covers positions 64b .. 64b + 63. For the keys j of the tile that the row sees (Milakov
// and Gimelshein 2018; Dao et al. 2022, section 3.1; here to base 2):
//   t_j = (sum_d q_d k_jd) * (scale * log2 e),  m = max t_j,  p_j = 2^(t_j - m),  l = sum p_j,
//   o = sum p_j v_j
// and tiles fold from the left, beginning with the tile of the first position seen, into (M, L, O),
// which starts as (-inf, 0, 0):
//   M' = max(M, m),  L' = L 2^(M-M') + l 2^(m-M'),  O' = O 2^(M-M') + o 2^(m-M')
// The result is O / L; a zero is +0.
//
// Orders of addition within each row:
//   fp32 FMA    one fp32 accumulator for every t_j (d ascending) and every element of o (j
//               ascending), from 0, with a fused multiply-add per step if the instruction set has
//               one.
//   bfloat16    if the instruction set has products of bfloat16 and the cache is in pairs. q is
//               rounded to bfloat16, and so is p for o. avx512_bf16: one fp32 accumulator, a
//               vdpbf16ps for every pair (2d, 2d + 1), and (2j, 2j + 1) of values, ascending.
//               amx_bf16: a tdpbf16ps for every 32 d, or 32 j (see matmul.h).
//   l           lane i of a vector of kLanes sums the p_j, not rounded, of j = i, i + kLanes, ..,
//               ascending, with 0 for keys not seen; then halves of the vector are added onto each
//               other.
//   folding     a rounded product by the factor of M; then a fused multiply-add of the tile's.
// A tile of kF8 is read as bfloat16, exactly: results are as if bfloat16 were stored. A row that
// sees a NaN score t_j is NaN in every element; the bits of a NaN are not specified. Other rows are
// not affected. Keys not seen may be summed with p = 0 and their values taken as 0, or left out:
// the bits are the same, since the two differ only in the sign of zeros. Their stored values are
// never used.
struct AttentionArgs {
  const void* q = nullptr;       // [tokens] rows of [heads, head_dim]
  Storage type = Storage::kF32;  // type of q and out; kF32 or kBF16
  int64_t q_stride = 0;          // elements between tokens
  int64_t tokens = 0;            // tokens * heads <= kMaxAttentionRows
  int64_t heads = 0;
  int64_t head_dim = 0;
  float scale = 1.0f;
  int64_t position = 0;  // position of the first token
  int64_t window = 0;    // each token sees the last `window` positions up to its own; 0: all
  const int32_t* block_table = nullptr;
  const void* cache = nullptr;  // block 0 of the layer
  Storage storage = Storage::kF32;
  int64_t block_bytes = 0;   // distance from one block to the next
  int64_t key_offset = 0;    // bytes from a block's start to this head's keys
  int64_t value_offset = 0;  // bytes from a block's start to this head's values
  // The keys of the next tile that the thread reads after this call, worth prefetching; its values
  // follow at the same distance as here. Null: not known.
  const void* next_keys = nullptr;
  void* out = nullptr;  // like q
  int64_t out_stride = 0;
  float* scratch = nullptr;  // AttentionScratch floats, aligned to a cache line
  // For a part of the work: each of the tiles [tile_begin, tile_end) is folded alone into a record
  // of its own (AttentionRecord floats, one after the other). `out` is then not written;
  // FoldRecords writes it. Null: all of the work.
  float* records = nullptr;
  int64_t tile_begin = 0;
  int64_t tile_end = 0;
};
inline constexpr int64_t kMaxAttentionRows = 96;

// Head dimensions are padded to full vectors in scratch rows.
constexpr int64_t PaddedHeadDim(int64_t head_dim) { return (head_dim + 15) / 16 * 16; }
// M [rows], L [rows] (both padded to full vectors) and O [rows, PaddedHeadDim], in this order.
constexpr int64_t AttentionRecord(int64_t rows, int64_t head_dim) {
  return 2 * PaddedHeadDim(rows) + rows * PaddedHeadDim(head_dim);
}
// Scratch has a record, the queries, and keys and values of a tile.
constexpr int64_t AttentionScratch(int64_t rows, int64_t head_dim) {
  return AttentionRecord(rows, head_dim) + (rows + 2 * 64) * PaddedHeadDim(head_dim);
}

// Folds the records of tiles [tile_begin, tile_end) of `attention` into `state`, also a record, for
// rows [row_begin, row_end). Calls for consecutive tiles, in order, give the result of one call for
// all of them.
struct FoldArgs {
  const AttentionArgs* attention = nullptr;
  float* state = nullptr;
  int64_t row_begin = 0;
  int64_t row_end = 0;
  bool begins = false;  // `state` is undefined before the call
  bool ends = false;    // `out` is written
};

// Stores consecutive tokens' keys and values of one kv head in their slots of a block. Does not
// touch other slots, so that threads may store into the same block.
struct StoreKvArgs {
  const void* key = nullptr;  // [tokens] rows of [head_dim]
  const void* value = nullptr;
  Storage type = Storage::kF32;  // type of key and value; kF32 or kBF16
  int64_t stride = 0;            // elements between tokens, for key and value
  int64_t tokens = 1;
  int64_t head_dim = 0;
  int64_t slot = 0;      // slot of the first token; slot + tokens <= 64
  void* keys = nullptr;  // keys of that head in the block
  void* values = nullptr;
  Storage storage = Storage::kF32;  // the type of the stored elements
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_KERNELS_ATTENTION_H_
