// Deals a batch's attention to the blocks of a fixed grid; knows nothing of CUDA.
#ifndef TLM_MODEL_OPS_CUDA_ATTENTION_PLAN_H_
#define TLM_MODEL_OPS_CUDA_ATTENTION_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "model/ops/batch.h"
#include "model/ops/cuda/kernels/attention_work.h"
#include "model/ops/ops.h"
#include "model/tensor/dtype.h"

namespace tlm {

// Which kernel a model's attention runs on, and its grid.
struct AttentionGrid {
  bool mma = false;
  int64_t blocks = 0;
  int64_t max_rows = 0;  // of a query tile
};

// By the model and the device alone, never by a batch. `shared_bytes_*` are the device's limits.
AttentionGrid ChooseAttentionGrid(const ModelShape& shape, DType activations, int multiprocessors,
                                  size_t shared_bytes_per_block,
                                  size_t shared_bytes_per_multiprocessor);

// Device memory the kernels of one stream share.
struct AttentionScratch {
  uint32_t* tickets = nullptr;
  float* partial_stats = nullptr;
  float* partial_values = nullptr;
};

// Makes the work of batches (kernels/attention_work.h). Every (query row, key tile it sees) is in
// exactly one unit, whatever the split, and the tiles of a row are folded in the same order. Blocks
// carry equally many tiles within 5 % and one tile: whole items, longest first, where that is
// enough; otherwise blocks are filled one after another and items cut at their borders, at most
// blocks - 1 cuts, the longest part being the prefix. Not thread-safe.
class AttentionPlanner {
 public:
  struct Options {
    // For tests: cuts every item into units of so many tiles; 0: as balance asks.
    int64_t unit_tiles = 0;
    // Partial rows take no more; items whose records do not fit stay whole.
    size_t max_partial_bytes = size_t{256} << 20;
  };

  // Heads divide evenly into groups; `limits` as the batches to come.
  AttentionPlanner(const BatchLimits& limits, const ModelShape& shape, const AttentionGrid& grid,
                   const Options& options);
  AttentionPlanner(const BatchLimits& limits, const ModelShape& shape, const AttentionGrid& grid)
      : AttentionPlanner(limits, shape, grid, Options()) {}

  const AttentionGrid& grid() const { return grid_; }
  // Of the work of the largest batch, and of one with at most so many tokens.
  size_t work_bytes() const { return work_bytes(max_tokens_); }
  size_t work_bytes(int64_t tokens) const;
  // Of the scratch. Its first ticket_bytes must be zeroed once, before the first launch.
  size_t scratch_bytes() const;
  size_t ticket_bytes() const;
  // The parts of `memory` of scratch_bytes, 256-byte aligned.
  AttentionScratch Scratch(void* memory) const;

  // Writes the work of a batch to `work`, of work_bytes(its tokens) and 16-byte aligned, and
  // returns the bytes written. The kernels find the batch's block tables from entry `tables_begin`
  // of theirs on. window > 0: tiles before it are left out; such work serves layers with a window
  // as large or smaller, work planned with 0 serves all. Tokens at positions below 0 have no work.
  // INVALID_ARGUMENT for batches beyond the limits.
  absl::StatusOr<size_t> Plan(const Batch& batch, int64_t window, std::span<std::byte> work,
                              int64_t tables_begin = 0);

 private:
  // A query tile as all kv heads have it.
  struct QueryTile {
    AttentionUnit unit;  // without what the split decides
    int64_t tiles() const { return unit.item_end - unit.begin; }
  };
  struct Piece {
    int64_t block;
    AttentionUnit unit;
  };
  // The block being filled, and what is left for it and those after it.
  struct Filling {
    int64_t block = 0;
    int64_t load = 0;
    int64_t target = 0;
    int64_t tiles_left = 0;
  };
  // Tokens [begin, end) of a sequence at positions one after the other; `first` is the sequence's
  // first in the batch.
  struct Run {
    int64_t first;
    int64_t begin;
    int64_t end;
  };
  // So many tiles of an item in one block.
  struct Share {
    int64_t block;
    int64_t tiles;
  };

  // Of a batch with so many tokens.
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
  const int64_t max_tiles_;  // of an item
  const int64_t max_tokens_;
  const int64_t max_sequences_;
  const int64_t max_partial_rows_;

  std::vector<QueryTile> tiles_;  // most key tiles first
  std::vector<Piece> pieces_;
  std::vector<Share> shares_;                      // of the item at hand
  std::vector<std::pair<int64_t, int64_t>> heap_;  // load and block
  int64_t total_tiles_ = 0;                        // of all items
  int64_t partial_rows_ = 0;
  int64_t tickets_ = 0;
  int64_t tables_begin_ = 0;
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_ATTENTION_PLAN_H_
