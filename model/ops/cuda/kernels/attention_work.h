// The plan of attention as its kernels read it: a batch's work, cut into units.
//
// The query rows of a run (consecutive tokens of one sequence) and one kv head are numbered token
// by token, within a token by query head of the group: row = token * group + head. A query tile is
// a stretch of them; an item is a query tile with the key tiles it sees; a unit is some of them.
//
//   key tiles of an item    0  1  2  3  4  5  6  7  8
//   units, any blocks       [prefix       ][     ][  ]
//   what they leave         one state      one partial a tile, folded upon it in this order
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_WORK_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_WORK_H_

#include <cstddef>
#include <cstdint>

namespace tlm {

// Positions of a key tile: a KV block.
inline constexpr int kAttentionTile = 64;
// The largest query tile of any kernel.
inline constexpr int kAttentionMaxRows = 64;

// Key tiles [begin, end) of an item whose key tiles are [.., item_end). One with units == 1 writes
// its rows of the output. Of several the first in tile order is the prefix, [.., prefix_end): what
// it folds becomes record 0; every other unit leaves record 1 + t - prefix_end for each tile t. A
// record is `rows` partial rows, the first of them number partial_row + record * rows. The unit
// that is done last folds records 1, 2, .. upon record 0 and writes the output.
struct alignas(16) AttentionUnit {
  int32_t token;     // of the first row, in the batch
  int32_t position;  // of that token; the following tokens' positions follow
  int32_t head;      // of the first row, within the group
  int32_t rows;      // of the query tile, at least 1
  int32_t table;     // where the sequence's blocks begin in the block tables
  int32_t kv_head;
  int32_t begin;
  int32_t end;
  int32_t item_end;
  int32_t units;  // of the item
  int32_t prefix_end;
  int32_t ticket;  // counts the units done; of items of several units only
  int64_t partial_row;
  int32_t last_position;  // of the last row's token
  int32_t stored;  // keys and values of positions below it were in the cache before the batch
};
static_assert(sizeof(AttentionUnit) == 64);

// The units of block b of the grid are [first[b], first[b + 1]), where first = int32 [blocks + 1]
// stands at the head of the work and the units follow, this many bytes on.
constexpr size_t AttentionUnitsOffset(int64_t blocks) {
  return (static_cast<size_t>(blocks) * 4 + 4 + 63) / 64 * 64;
}

// Whether the tensor cores have a kernel for 16-bit heads of this width.
constexpr bool HasMmaAttention(int64_t head_dim) {
  return head_dim == 64 || head_dim == 80 || head_dim == 96 || head_dim == 128 || head_dim == 256;
}
// Its query tiles: half as many rows of heads whose sums would not fit a warp's registers.
constexpr int MmaAttentionRows(int64_t head_dim) {
  return head_dim <= 128 ? kAttentionMaxRows : kAttentionMaxRows / 2;
}
// Its dynamic shared memory: two K and two V tiles and the queries; what few rows need besides lies
// where many queries would.
constexpr size_t MmaAttentionSharedBytes(int64_t head_dim) {
  return static_cast<size_t>(head_dim) * 2 *
         static_cast<size_t>(4 * kAttentionTile + MmaAttentionRows(head_dim));
}
// Of a cache in 8 bits: as many, of which the tiles' bytes take two tiles and what they become the
// others, and the scales.
constexpr size_t MmaFp8AttentionSharedBytes(int64_t head_dim) {
  return MmaAttentionSharedBytes(head_dim) + 4 * kAttentionTile;
}

// The plain kernel's query tiles: fewer rows of wide heads, so that any device has the memory.
constexpr int SimtAttentionRows(int64_t head_dim) { return head_dim <= 256 ? 16 : 4; }

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_WORK_H_
