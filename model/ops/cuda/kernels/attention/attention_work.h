// The plan of attention in the form that its kernels read: a batch's work, cut into units.
//
// The query rows of a run (consecutive tokens of one sequence) and one kv head are numbered token
// by token, and within a token by query head of the group: row = token * group + head. A query tile
// is a range of these rows; an item is a query tile with the key tiles that it sees; a unit is some
// of these key tiles.
//
//   key tiles of an item    0  1  2  3  4  5  6  7  8
//   units, any blocks       [prefix       ][     ][  ]
//   results                 one state      one partial per tile, folded into it in this order
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_ATTENTION_WORK_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_ATTENTION_WORK_H_

#include <cstddef>
#include <cstdint>

namespace tlm {

// Positions of a key tile, which is a KV block.
inline constexpr int kAttentionTile = 64;
// The largest query tile of any kernel.
inline constexpr int kAttentionMaxRows = 64;

// Key tiles [begin, end) of an item whose key tiles are [.., item_end). A unit with units == 1
// writes its rows of the output. Of several units the first in tile order is the prefix, [..,
// prefix_end): its folded state becomes record 0; every other unit stores record 1 + t - prefix_end
// for each tile t. A record is `rows` partial rows, the first with number partial_row + record *
// rows. The unit that ends last folds records 1, 2, .. into record 0 and writes the output.
struct alignas(16) AttentionUnit {
  int32_t token;     // index of the first row's token in the batch
  int32_t position;  // position of that token; later tokens have the following positions
  int32_t head;      // head of the first row, within the group
  int32_t rows;      // rows of the query tile, at least 1
  int32_t table;     // index of the sequence's first block in the block tables
  int32_t kv_head;
  int32_t begin;
  int32_t end;
  int32_t item_end;
  int32_t units;  // number of the item's units
  int32_t prefix_end;
  int32_t ticket;  // counts finished units; only for items of several units
  int64_t partial_row;
  int32_t last_position;  // position of the last row's token
  int32_t stored;         // keys and values of lower positions were in the cache before the batch
};
static_assert(sizeof(AttentionUnit) == 64);

// The units of block b of the grid are [first[b], first[b + 1]), where first = int32 [blocks + 1]
// is at the beginning of the work, and the units begin this many bytes after it.
constexpr size_t AttentionUnitsOffset(int64_t blocks) {
  return (static_cast<size_t>(blocks) * 4 + 4 + 63) / 64 * 64;
}

// Whether the tensor cores have a kernel for 16-bit heads of this width.
constexpr bool HasMmaAttention(int64_t head_dim) {
  return head_dim == 64 || head_dim == 80 || head_dim == 96 || head_dim == 128 || head_dim == 256;
}
// Rows of its query tiles: half as many for heads whose sums would not fit a warp's registers.
constexpr int MmaAttentionRows(int64_t head_dim) {
  return head_dim <= 128 ? kAttentionMaxRows : kAttentionMaxRows / 2;
}
// Its dynamic shared memory: two K and two V tiles and the queries. Units of few rows store their
// other data in place of queries.
constexpr size_t MmaAttentionSharedBytes(int64_t head_dim) {
  return static_cast<size_t>(head_dim) * 2 *
         static_cast<size_t>(4 * kAttentionTile + MmaAttentionRows(head_dim));
}
// The same for a cache in 8 bits, plus the scales: the tiles' bytes take two tiles, the widened
// tiles the other two.
constexpr size_t MmaFp8AttentionSharedBytes(int64_t head_dim) {
  return MmaAttentionSharedBytes(head_dim) + 4 * kAttentionTile;
}

// Rows of the plain kernel's query tiles: fewer for wide heads, so that they fit the memory of any
// device.
constexpr int SimtAttentionRows(int64_t head_dim) { return head_dim <= 256 ? 16 : 4; }

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_ATTENTION_ATTENTION_WORK_H_
