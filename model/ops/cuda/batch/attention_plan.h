// Deals a batch's attention to the blocks of a fixed grid. Plain C++, no CUDA.
#ifndef TLM_MODEL_OPS_CUDA_BATCH_ATTENTION_PLAN_H_
#define TLM_MODEL_OPS_CUDA_BATCH_ATTENTION_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "model/ops/batch.h"
#include "model/ops/cuda/kernels/attention/attention_work.h"
#include "model/ops/ops.h"
#include "model/tensor/dtype.h"

namespace tlm {

// The kernel of a model's attention, and its grid.
struct AttentionGrid {
  bool mma = false;
  int64_t blocks = 0;
  int64_t max_rows = 0;  // rows of a query tile
};

// Chooses by the model and the device, never by a batch. `shared_bytes_*` are the device's limits.
AttentionGrid ChooseAttentionGrid(const ModelShape& shape, DType activations, int multiprocessors,
                                  size_t shared_bytes_per_block,
                                  size_t shared_bytes_per_multiprocessor);

// Device memory that the kernels of one stream share.
struct AttentionScratch {
  uint32_t* tickets = nullptr;
  float* partial_stats = nullptr;
  float* partial_values = nullptr;
};

// Plans the work of batches (attention_work.h). Every (query row, key tile it sees) is in
// exactly one unit, however the work is split, and the tiles of a row are folded in the same order.
// The blocks' loads are equal within 5 % and one tile. If whole items, longest first, achieve this,
// no item is split. Otherwise blocks are filled one after another and items are cut where a block
// is full: at most blocks - 1 cuts, and the longest part is the prefix. Not thread-safe.
class AttentionPlanner {
 public:
  struct Options {
    // For tests: cuts every item into units of this many tiles; 0: cuts for balance.
    int64_t unit_tiles = 0;
    // The limit for all partial rows; items whose records exceed it are not split.
    size_t max_partial_bytes = size_t{256} << 20;
  };

  // Heads divide evenly into groups; `limits` applies to all later batches.
  AttentionPlanner(const BatchLimits& limits, const ModelShape& shape, const AttentionGrid& grid,
                   const Options& options);
  AttentionPlanner(const BatchLimits& limits, const ModelShape& shape, const AttentionGrid& grid)
      : AttentionPlanner(limits, shape, grid, Options()) {}

  const AttentionGrid& grid() const { return grid_; }
  // Bytes of the work of the largest batch, or of a batch with at most `tokens` tokens.
  size_t work_bytes() const { return work_bytes(max_tokens_); }
  size_t work_bytes(int64_t tokens) const;
  // Bytes of the scratch. Its first ticket_bytes must be zeroed once, before the first launch.
  size_t scratch_bytes() const;
  size_t ticket_bytes() const;
  // Divides `memory`, scratch_bytes long and 256-byte aligned, into the parts of the scratch.
  AttentionScratch Scratch(void* memory) const;

  // Writes the work of a batch to `work`, which has work_bytes(the batch's tokens) and is 16-byte
  // aligned, and returns the bytes written. The batch's block tables begin at entry `tables_begin`
  // of the kernels' tables. window > 0: tiles before the window are left out; such work serves
  // layers with an equal or smaller window, work planned with 0 serves all layers. Tokens at
  // positions below 0 have no work. Returns INVALID_ARGUMENT for batches beyond the limits.
  absl::StatusOr<size_t> Plan(const Batch& batch, int64_t window, std::span<std::byte> work,
                              int64_t tables_begin = 0);

 private:
  // A query tile, which all kv heads share.
  struct QueryTile {
    AttentionUnit unit;  // without the fields that the split sets
    int64_t tiles() const { return unit.item_end - unit.begin; }
  };
  struct Piece {
    int64_t block;
    AttentionUnit unit;
  };
  // The block that is being filled, and the work left for it and later blocks.
  struct Filling {
    int64_t block = 0;
    int64_t load = 0;
    int64_t target = 0;
    int64_t tiles_left = 0;
  };
  // Tokens [begin, end) of a sequence at consecutive positions; `first` is the sequence's first
  // token in the batch.
  struct Run {
    int64_t first;
    int64_t begin;
    int64_t end;
  };
  // The number of an item's tiles that one block gets.
  struct Share {
    int64_t block;
    int64_t tiles;
  };

  // Limits for a batch with this many tokens.
  int64_t MaxItems(int64_t tokens) const;
  int64_t MaxUnits(int64_t tokens) const;
  absl::Status FindQueryTiles(const Batch& batch, int64_t window);
  absl::Status AddRun(const Batch& batch, const Run& run, int64_t window);
  bool DealWhole();
  void DealFilling();
  void DealUnits();
  void TakeShares(const QueryTile& tile, bool whole, Filling& filling);
  void AddItem(const QueryTile& tile, int64_t kv_head);
  int64_t RecordRows(const QueryTile& tile) const;
  bool SharesFit(const QueryTile& tile) const;
  size_t Write(std::span<std::byte> work) const;

  const AttentionGrid grid_;
  const Options options_;
  const int64_t group_;
  const int64_t kv_heads_;
  const int64_t head_dim_;
  const int64_t max_tiles_;  // tiles of an item
  const int64_t max_tokens_;
  const int64_t max_sequences_;
  const int64_t max_partial_rows_;

  std::vector<QueryTile> tiles_;  // most key tiles first
  std::vector<Piece> pieces_;
  std::vector<Share> shares_;                      // shares of the current item
  std::vector<std::pair<int64_t, int64_t>> heap_;  // load and block
  int64_t total_tiles_ = 0;                        // tiles of all items
  int64_t partial_rows_ = 0;
  int64_t tickets_ = 0;
  int64_t tables_begin_ = 0;
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_BATCH_ATTENTION_PLAN_H_
