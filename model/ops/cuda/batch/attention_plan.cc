#include "model/ops/cuda/batch/attention_plan.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "model/base/errors.h"
#include "model/ops/cuda/kernels/ceil_div.h"

namespace tlm {
namespace {

static_assert(kAttentionTile == kBlockTokens);

// The rows of a query tile for which partial memory is sized: decode has no more, prefill has many
// items and little need to cut them.
constexpr int64_t kPartialRows = 16;

size_t RoundUp(size_t bytes) { return (bytes + 255) / 256 * 256; }

// Returns the load that a block may reach if the mean is tiles / blocks.
int64_t Tolerated(int64_t tiles, int64_t blocks) {
  return std::max<int64_t>(1, CeilDiv(tiles * 21, blocks * 20));
}

size_t PartialRowBytes(int64_t head_dim) { return static_cast<size_t>(head_dim + 2) * 4; }

}  // namespace

AttentionGrid ChooseAttentionGrid(const ModelShape& shape, DType activations, int multiprocessors,
                                  size_t shared_bytes_per_block,
                                  size_t shared_bytes_per_multiprocessor) {
  // The driver reserves this much of a block's shared memory.
  constexpr size_t kReservedBytes = 1024;
  // Uses the larger of the two caches' sizes, so that the grid is the same for both.
  const size_t bytes = MmaFp8AttentionSharedBytes(shape.head_dim);
  if (activations == DType::kF32 || !HasMmaAttention(shape.head_dim) ||
      bytes > shared_bytes_per_block) {
    return {false, int64_t{4} * multiprocessors, SimtAttentionRows(shape.head_dim)};
  }
  const bool two = 2 * (bytes + kReservedBytes) <= shared_bytes_per_multiprocessor;
  return {true, int64_t{two ? 2 : 1} * multiprocessors, MmaAttentionRows(shape.head_dim)};
}

AttentionPlanner::AttentionPlanner(const BatchLimits& limits, const ModelShape& shape,
                                   const AttentionGrid& grid, const Options& options)
    : grid_(grid),
      options_(options),
      group_(shape.num_heads / shape.num_kv_heads),
      kv_heads_(shape.num_kv_heads),
      head_dim_(shape.head_dim),
      max_tiles_(CeilDiv(limits.max_context, kAttentionTile)),
      max_tokens_(limits.max_tokens),
      max_sequences_(limits.max_sequences),
      max_partial_rows_(
          std::min(grid.blocks * (max_tiles_ + 1) * std::min(kPartialRows, grid.max_rows),
                   static_cast<int64_t>(options.max_partial_bytes / PartialRowBytes(head_dim_)))) {
  TLM_CHECK(grid.blocks > 0 && grid.max_rows > 0 && group_ > 0);
}

// A run of n rows has ceil(n / max_rows) query tiles.
int64_t AttentionPlanner::MaxItems(int64_t tokens) const {
  tokens = std::min(tokens, max_tokens_);
  return (std::min(max_sequences_, tokens) + tokens * group_ / grid_.max_rows) * kv_heads_;
}

// Every cut adds a unit, and filling cuts at the borders between blocks.
int64_t AttentionPlanner::MaxUnits(int64_t tokens) const {
  const int64_t items = MaxItems(tokens);
  return options_.unit_tiles > 0 ? items * CeilDiv(max_tiles_, options_.unit_tiles)
                                 : items + grid_.blocks;
}

size_t AttentionPlanner::work_bytes(int64_t tokens) const {
  return AttentionUnitsOffset(grid_.blocks) +
         static_cast<size_t>(MaxUnits(tokens)) * sizeof(AttentionUnit);
}

size_t AttentionPlanner::ticket_bytes() const {
  return RoundUp(static_cast<size_t>(MaxItems(max_tokens_)) * sizeof(uint32_t));
}

size_t AttentionPlanner::scratch_bytes() const {
  return ticket_bytes() + RoundUp(static_cast<size_t>(max_partial_rows_) * 2 * sizeof(float)) +
         RoundUp(static_cast<size_t>(max_partial_rows_ * head_dim_) * sizeof(float));
}

AttentionScratch AttentionPlanner::Scratch(void* memory) const {
  std::byte* const stats = static_cast<std::byte*>(memory) + ticket_bytes();
  std::byte* const values =
      stats + RoundUp(static_cast<size_t>(max_partial_rows_) * 2 * sizeof(float));
  return {static_cast<uint32_t*>(memory), reinterpret_cast<float*>(stats),
          reinterpret_cast<float*>(values)};
}

absl::StatusOr<size_t> AttentionPlanner::Plan(const Batch& batch, int64_t window,
                                              std::span<std::byte> work, int64_t tables_begin) {
  TLM_CHECK(work.size() >= work_bytes(batch.tokens()));
  tables_begin_ = tables_begin;
  pieces_.clear();
  partial_rows_ = tickets_ = 0;
  TLM_RETURN_IF_ERROR(FindQueryTiles(batch, window));
  if (options_.unit_tiles > 0) {
    DealUnits();
  } else if (!DealWhole()) {
    DealFilling();
  }
  return Write(work);
}

absl::Status AttentionPlanner::FindQueryTiles(const Batch& batch, int64_t window) {
  tiles_.clear();
  total_tiles_ = 0;
  const int64_t tokens = batch.tokens();
  int64_t first = 0;  // the first of the sequence's tokens
  for (int64_t begin = 0; begin < tokens;) {
    if (batch.sequence_of[begin] != batch.sequence_of[first]) first = begin;
    int64_t end = begin + 1;
    while (end < tokens && batch.sequence_of[end] == batch.sequence_of[begin] &&
           batch.positions[end] == batch.positions[end - 1] + 1) {
      ++end;
    }
    if (batch.positions[begin] >= 0) {
      TLM_RETURN_IF_ERROR(AddRun(batch, {.first = first, .begin = begin, .end = end}, window));
    }
    begin = end;
  }
  const int64_t items = static_cast<int64_t>(tiles_.size()) * kv_heads_;
  if (items > MaxItems(tokens)) {
    return InvalidArgument("attention has {} items, the limit is {}", items, MaxItems(tokens));
  }
  std::stable_sort(tiles_.begin(), tiles_.end(),
                   [](const QueryTile& a, const QueryTile& b) { return a.tiles() > b.tiles(); });
  return absl::OkStatus();
}

absl::Status AttentionPlanner::AddRun(const Batch& batch, const Run& run, int64_t window) {
  const int64_t rows = (run.end - run.begin) * group_;
  for (int64_t row = 0; row < rows; row += grid_.max_rows) {
    const int64_t count = std::min(grid_.max_rows, rows - row);
    const int64_t token = run.begin + row / group_;
    const int64_t position = batch.positions[token];
    const int64_t last = batch.positions[run.begin + (row + count - 1) / group_];
    const int64_t first = window > 0 ? std::max<int64_t>(0, position + 1 - window) : 0;
    QueryTile tile{};
    tile.unit.token = static_cast<int32_t>(token);
    tile.unit.position = static_cast<int32_t>(position);
    tile.unit.last_position = static_cast<int32_t>(last);
    tile.unit.stored = std::max<int32_t>(0, batch.positions[run.first]);
    tile.unit.head = static_cast<int32_t>(row % group_);
    tile.unit.rows = static_cast<int32_t>(count);
    tile.unit.table =
        static_cast<int32_t>(tables_begin_ + batch.sequence_of[token] * batch.max_blocks);
    tile.unit.begin = static_cast<int32_t>(first / kAttentionTile);
    tile.unit.item_end = static_cast<int32_t>(last / kAttentionTile + 1);
    if (tile.unit.item_end > max_tiles_) {
      return InvalidArgument("position is {}, the limit is {}", last, max_tiles_ * kAttentionTile);
    }
    total_tiles_ += tile.tiles() * kv_heads_;
    tiles_.push_back(tile);
  }
  return absl::OkStatus();
}

// Gives every item to the block with the least load, longest item first (Graham 1969). Returns
// false if a block then has more load than is tolerated.
bool AttentionPlanner::DealWhole() {
  const int64_t tolerated = Tolerated(total_tiles_, grid_.blocks);
  if (!tiles_.empty() && tiles_.front().tiles() > tolerated) return false;
  heap_.clear();
  for (int64_t block = 0; block < grid_.blocks; ++block) heap_.emplace_back(0, block);
  for (const QueryTile& tile : tiles_) {
    for (int64_t kv_head = 0; kv_head < kv_heads_; ++kv_head) {
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      auto& [load, block] = heap_.back();
      load += tile.tiles();
      if (load > tolerated) {
        pieces_.clear();
        return false;
      }
      shares_.assign(1, Share{block, tile.tiles()});
      AddItem(tile, kv_head);
      std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
    }
  }
  return true;
}

// Fills one block after another with an equal part of the remaining work. An item that is cut where
// a block is full continues in the next block.
void AttentionPlanner::DealFilling() {
  Filling filling{.target = CeilDiv(total_tiles_, grid_.blocks), .tiles_left = total_tiles_};
  for (const QueryTile& tile : tiles_) {
    for (int64_t kv_head = 0; kv_head < kv_heads_; ++kv_head) {
      const Filling before = filling;
      TakeShares(tile, /*whole=*/false, filling);
      if (!SharesFit(tile)) {
        filling = before;
        TakeShares(tile, /*whole=*/true, filling);
      }
      AddItem(tile, kv_head);
    }
  }
}

void AttentionPlanner::TakeShares(const QueryTile& tile, bool whole, Filling& filling) {
  shares_.clear();
  for (int64_t left = tile.tiles(); left > 0;) {
    const int64_t room = filling.target - filling.load;
    const bool all = whole || left <= room + filling.target / 20;
    const int64_t share = all ? left : room;
    shares_.push_back({filling.block, share});
    filling.load += share;
    left -= share;
    if (filling.load >= filling.target && filling.block + 1 < grid_.blocks) {
      filling.tiles_left -= filling.load;
      ++filling.block;
      filling.load = 0;
      filling.target = CeilDiv(filling.tiles_left, grid_.blocks - filling.block);
    }
  }
}

void AttentionPlanner::DealUnits() {
  int64_t next = 0;
  for (const QueryTile& tile : tiles_) {
    for (int64_t kv_head = 0; kv_head < kv_heads_; ++kv_head) {
      shares_.clear();
      for (int64_t left = tile.tiles(); left > 0; left -= shares_.back().tiles) {
        shares_.push_back({next++ % grid_.blocks, std::min(left, options_.unit_tiles)});
      }
      if (!SharesFit(tile)) shares_.assign(1, Share{next++ % grid_.blocks, tile.tiles()});
      AddItem(tile, kv_head);
    }
  }
}

// Returns the rows of the records for the item's current shares.
int64_t AttentionPlanner::RecordRows(const QueryTile& tile) const {
  if (shares_.size() == 1) return 0;
  int64_t longest = 0;
  for (const Share& share : shares_) longest = std::max(longest, share.tiles);
  return (1 + tile.tiles() - longest) * tile.unit.rows;
}

bool AttentionPlanner::SharesFit(const QueryTile& tile) const {
  return partial_rows_ + RecordRows(tile) <= max_partial_rows_;
}

// An item's units in the blocks of shares_: the longest share begins it, the others follow.
void AttentionPlanner::AddItem(const QueryTile& tile, int64_t kv_head) {
  const auto longest =
      std::max_element(shares_.begin(), shares_.end(),
                       [](const Share& a, const Share& b) { return a.tiles < b.tiles; });
  AttentionUnit unit = tile.unit;
  unit.kv_head = static_cast<int32_t>(kv_head);
  unit.units = static_cast<int32_t>(shares_.size());
  unit.prefix_end = static_cast<int32_t>(unit.begin + longest->tiles);
  unit.partial_row = partial_rows_;
  partial_rows_ += RecordRows(tile);
  if (unit.units > 1) unit.ticket = static_cast<int32_t>(tickets_++);
  std::rotate(shares_.begin(), longest, longest + 1);
  for (const Share& share : shares_) {
    unit.end = static_cast<int32_t>(unit.begin + share.tiles);
    pieces_.push_back({share.block, unit});
    unit.begin = unit.end;
  }
}

// A block takes its parts of cut items first, so that they end early and are folded while other
// blocks still compute.
size_t AttentionPlanner::Write(std::span<std::byte> work) const {
  TLM_CHECK(AttentionUnitsOffset(grid_.blocks) + pieces_.size() * sizeof(AttentionUnit) <=
            work.size());
  auto* const first = reinterpret_cast<int32_t*>(work.data());
  auto* const units =
      reinterpret_cast<AttentionUnit*>(work.data() + AttentionUnitsOffset(grid_.blocks));
  std::fill_n(first, grid_.blocks + 1, 0);
  for (const Piece& piece : pieces_) ++first[piece.block];
  // After each pass over the pieces first[b] is the place of the next unit of block b.
  int32_t begin = 0;
  for (int64_t block = 0; block <= grid_.blocks; ++block) {
    begin += std::exchange(first[block], begin);
  }
  for (const bool cut : {true, false}) {
    for (const Piece& piece : pieces_) {
      if ((piece.unit.units > 1) == cut) units[first[piece.block]++] = piece.unit;
    }
  }
  // Now first[b] is the end of block b, which is the beginning of b + 1.
  std::copy_backward(first, first + grid_.blocks, first + grid_.blocks + 1);
  first[0] = 0;
  return AttentionUnitsOffset(grid_.blocks) + pieces_.size() * sizeof(AttentionUnit);
}

}  // namespace tlm
