#include "model/ops/cpu/attention.h"

#include <algorithm>
#include <atomic>

#include "model/base/errors.h"
#include "model/ops/cpu/packed_matrix.h"

namespace tlm {
namespace {

// Less work than this, some microseconds, is not worth handing to another thread.
constexpr int64_t kMinAttentionTaskProducts = 131072;
// Fewer tiles than this are not split.
constexpr int64_t kMinSplitTiles = 4;

// Floats for the states of split units, and again for their records.
int64_t SplitFloats(int64_t threads, int64_t head_dim) {
  return threads > 1 ? threads * AttentionRecord(kMaxAttentionRows, head_dim) : 0;
}

}  // namespace

struct CpuAttention::Call {
  const Rows& q;
  float scale;
  int64_t window;
  const TokenLayout& layout;
  const KvLayer& cache;
  const Rows& out;

  int64_t group() const { return q.cols / cache.head_dim / cache.num_kv_heads; }
};

// Reading a tile takes as long as computing with it for a few rows.
int64_t CpuAttention::Unit::cost() const { return tiles() * (rows() + 4); }

size_t CpuAttention::ReserveBytes(int64_t head_dim) const {
  const int64_t floats = threads() * AttentionScratch(kMaxAttentionRows, head_dim) +
                         2 * SplitFloats(threads(), head_dim);
  return static_cast<size_t>(floats) * sizeof(float);
}

absl::Status CpuAttention::Reserve(Device& device, int64_t head_dim) {
  if (head_dim <= max_head_dim_) return absl::OkStatus();
  TLM_ASSIGN_OR_RETURN(memory_,
                       device.Allocate(ReserveBytes(head_dim), MemoryPurpose::kActivations));
  max_head_dim_ = head_dim;
  return absl::OkStatus();
}

float* CpuAttention::scratch(int64_t thread) const {
  return memory_.as<float>() + thread * AttentionScratch(kMaxAttentionRows, max_head_dim_);
}
float* CpuAttention::states() const { return scratch(threads()); }
float* CpuAttention::records() const { return states() + SplitFloats(threads(), max_head_dim_); }

void CpuAttention::Run(const Rows& q, float scale, int64_t window, const TokenLayout& layout,
                       const KvLayer& cache, const Rows& out) {
  const Call call{q, scale, window, layout, cache, out};
  TLM_CHECK(call.group() * cache.num_kv_heads * cache.head_dim == q.cols && out.cols == q.cols &&
            out.dtype == q.dtype);
  TLM_CHECK(memory_.data() != nullptr && cache.head_dim <= max_head_dim_);
  MakeUnits(call);
  const int64_t splits = UnitsToSplit(cache.head_dim);
  int64_t unit = 0;
  int64_t tile = splits > 0 ? units_[0].tile_begin : 0;
  do {
    CutPieces(splits, cache.head_dim, &unit, &tile);
    Compute(call, unit == splits ? splits : static_cast<int64_t>(units_.size()));
    FoldPieces(call);
  } while (unit < splits);
}

// A unit is long enough to share the reading of tiles, short enough to keep all threads busy.
void CpuAttention::MakeUnits(const Call& call) {
  const TokenLayout& layout = call.layout;
  const int64_t kv_heads = call.cache.num_kv_heads;
  const int64_t parts = DivideUp(call.group(), kMaxAttentionRows);
  const int64_t heads = DivideUp(call.group(), parts);
  const int64_t fair = DivideUp(layout.tokens * kv_heads * parts, 4 * threads());
  const int64_t max_tokens = std::clamp(kMaxAttentionRows / heads, int64_t{1}, fair);
  units_.clear();
  for (int64_t token = 0; token < layout.tokens;) {
    int64_t end = token + 1;
    while (end < layout.tokens && end - token < max_tokens &&
           layout.sequence_of[end] == layout.sequence_of[token] &&
           layout.positions[end] == layout.positions[end - 1] + 1) {
      ++end;
    }
    const int64_t first_seen =
        call.window > 0 ? std::max<int64_t>(0, layout.positions[token] + 1 - call.window) : 0;
    for (int64_t kv_head = 0; kv_head < kv_heads; ++kv_head) {
      for (int64_t head = 0; head < call.group(); head += heads) {
        units_.push_back({.token = token,
                          .tokens = end - token,
                          .kv_head = kv_head,
                          .first_head = head,
                          .heads = std::min(heads, call.group() - head),
                          .tile_begin = first_seen / kBlockTokens,
                          .tile_end = layout.positions[end - 1] / kBlockTokens + 1});
      }
    }
    token = end;
  }
}

int64_t CpuAttention::UnitsToSplit(int64_t head_dim) {
  int64_t total = 0;
  int64_t most = 0;
  for (const Unit& unit : units_) {
    total += unit.cost();
    most = std::max(most, unit.cost());
  }
  // If the last unit takes little time, any order is good.
  if (threads() == 1 || most * threads() * 16 < total) return 0;
  std::stable_sort(units_.begin(), units_.end(),
                   [](const Unit& a, const Unit& b) { return a.cost() > b.cost(); });
  state_begin_.clear();
  int64_t floats = 0;
  for (const Unit& unit : units_) {
    const int64_t record = AttentionRecord(unit.rows(), head_dim);
    if (unit.cost() * 2 * threads() <= total || unit.tiles() < kMinSplitTiles ||
        floats + record > SplitFloats(threads(), max_head_dim_)) {
      break;
    }
    state_begin_.push_back(floats);
    floats += record;
  }
  return static_cast<int64_t>(state_begin_.size());
}

void CpuAttention::CutPieces(int64_t splits, int64_t head_dim, int64_t* unit, int64_t* tile) {
  pieces_.clear();
  split_units_.clear();
  int64_t total = 0;
  for (const Unit& each : units_) total += each.cost();
  int64_t room = SplitFloats(threads(), max_head_dim_);
  float* to = records();
  while (*unit < splits) {
    const Unit& of = units_[static_cast<size_t>(*unit)];
    const int64_t record = AttentionRecord(of.rows(), head_dim);
    const int64_t tiles = std::min(of.tile_end - *tile, room / record);
    if (tiles == 0) return;
    split_units_.push_back({*unit, *tile, *tile + tiles, to});
    // Each thread gets a few pieces.
    const int64_t step = std::clamp<int64_t>(total * of.tiles() / (4 * threads() * of.cost()), 1,
                                             DivideUp(tiles, threads()));
    for (int64_t begin = 0; begin < tiles; begin += step) {
      pieces_.push_back(
          {*unit, *tile + begin, *tile + std::min(tiles, begin + step), to + begin * record});
    }
    to += tiles * record;
    room -= tiles * record;
    *tile += tiles;
    if (*tile < of.tile_end) return;
    ++*unit;
    if (*unit < splits) *tile = units_[static_cast<size_t>(*unit)].tile_begin;
  }
}

void CpuAttention::Compute(const Call& call, int64_t first_unit) {
  const auto pieces = static_cast<int64_t>(pieces_.size());
  const int64_t units = static_cast<int64_t>(units_.size()) - first_unit;
  int64_t cost = 0;
  for (int64_t i = 0; i < units; ++i) cost += units_[static_cast<size_t>(first_unit + i)].cost();
  const int64_t mean_products = std::max<int64_t>(
      1, cost * 2 * kBlockTokens * call.cache.head_dim / std::max<int64_t>(1, units));
  const int64_t units_per_task = std::clamp<int64_t>(kMinAttentionTaskProducts / mean_products, 1,
                                                     std::max<int64_t>(1, units));
  const int64_t tasks = pieces + DivideUp(units, units_per_task);
  const auto first_unit_of = [&](int64_t task) {
    return first_unit + (task - pieces) * units_per_task;
  };
  // Returns the address at which a task begins to read.
  const auto keys_of = [&](int64_t task) -> const void* {
    if (task >= tasks) return nullptr;
    if (task >= pieces) return FirstKeys(call, units_[static_cast<size_t>(first_unit_of(task))]);
    const Piece& piece = pieces_[static_cast<size_t>(task)];
    return KeysOf(call, units_[static_cast<size_t>(piece.unit)], piece.tile_begin);
  };
  std::atomic<int64_t> next{0};
  pool_.ParallelFor(std::min(tasks, threads()), [&](int64_t thread) {
    for (int64_t task = next.fetch_add(1, std::memory_order_relaxed); task < tasks;
         task = next.fetch_add(1, std::memory_order_relaxed)) {
      // This is mostly the thread's next task, since all tasks take about the same time.
      const void* const next_keys = keys_of(task + threads());
      if (task < pieces) {
        const Piece& piece = pieces_[static_cast<size_t>(task)];
        AttentionArgs args = ArgsOf(call, units_[static_cast<size_t>(piece.unit)]);
        args.scratch = scratch(thread);
        args.records = piece.records;
        args.tile_begin = piece.tile_begin;
        args.tile_end = piece.tile_end;
        args.next_keys = next_keys;
        kernels_.attention(args);
        continue;
      }
      const int64_t begin = first_unit_of(task) - first_unit;
      const int64_t end = std::min(units, begin + units_per_task);
      for (int64_t i = begin; i < end; ++i) {
        const Unit* const unit = &units_[static_cast<size_t>(first_unit + i)];
        AttentionArgs args = ArgsOf(call, *unit);
        args.scratch = scratch(thread);
        args.next_keys = i + 1 < end ? FirstKeys(call, unit[1]) : next_keys;
        kernels_.attention(args);
      }
    }
  });
}

void CpuAttention::FoldPieces(const Call& call) {
  int64_t rows = 0;
  for (const Piece& whole : split_units_) rows += units_[static_cast<size_t>(whole.unit)].rows();
  pool_.ParallelFor(rows, [&](int64_t row) {
    auto whole = split_units_.begin();
    while (row >= units_[static_cast<size_t>(whole->unit)].rows()) {
      row -= units_[static_cast<size_t>(whole->unit)].rows();
      ++whole;
    }
    const Unit& unit = units_[static_cast<size_t>(whole->unit)];
    AttentionArgs args = ArgsOf(call, unit);
    args.records = whole->records;
    args.tile_begin = whole->tile_begin;
    args.tile_end = whole->tile_end;
    kernels_.fold_attention({.attention = &args,
                             .state = states() + state_begin_[static_cast<size_t>(whole->unit)],
                             .row_begin = row,
                             .row_end = row + 1,
                             .begins = whole->tile_begin == unit.tile_begin,
                             .ends = whole->tile_end == unit.tile_end});
  });
}

const void* CpuAttention::KeysOf(const Call& call, const Unit& unit, int64_t tile) {
  const TokenLayout& layout = call.layout;
  const KvLayer& cache = call.cache;
  const int64_t block =
      layout.block_tables[layout.sequence_of[unit.token] * layout.max_blocks + tile];
  return static_cast<const char*>(cache.data) + static_cast<size_t>(block) * cache.stride_bytes() +
         static_cast<size_t>(unit.kv_head) * cache.head_bytes();
}

AttentionArgs CpuAttention::ArgsOf(const Call& call, const Unit& unit) const {
  const TokenLayout& layout = call.layout;
  const KvLayer& cache = call.cache;
  const auto head_bytes = static_cast<int64_t>(cache.head_bytes());
  const int64_t values = cache.num_kv_heads * head_bytes;
  const int64_t column = (unit.kv_head * call.group() + unit.first_head) * cache.head_dim;
  const auto row_of = [&](const Rows& rows) {
    return static_cast<char*>(rows.data) +
           static_cast<size_t>(unit.token * rows.stride + column) * DTypeBytes(rows.dtype);
  };
  return {.q = row_of(call.q),
          .type = StorageOf(call.q.dtype),
          .q_stride = call.q.stride,
          .tokens = unit.tokens,
          .heads = unit.heads,
          .head_dim = cache.head_dim,
          .scale = call.scale,
          .position = layout.positions[unit.token],
          .window = call.window,
          .block_table = layout.block_tables + layout.sequence_of[unit.token] * layout.max_blocks,
          .cache = cache.data,
          .storage = StorageOf(cache.dtype),
          .block_bytes = static_cast<int64_t>(cache.stride_bytes()),
          .key_offset = unit.kv_head * head_bytes,
          .value_offset = values + unit.kv_head * head_bytes,
          .out = row_of(call.out),
          .out_stride = call.out.stride};
}

}  // namespace tlm
