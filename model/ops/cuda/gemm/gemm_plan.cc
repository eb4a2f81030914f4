#include "model/ops/cuda/gemm/gemm_plan.h"

#include <algorithm>
#include <limits>

#include "model/base/errors.h"
#include "model/ops/cuda/kernels/ceil_div.h"
#include "model/ops/cuda/kernels/gemm/gemm_tiles.h"

namespace tlm {
namespace {

// Shared memory that the system reserves per thread block, on all devices since compute capability
// 8.0.
constexpr size_t kReservedSharedBytes = 1024;
// Thread blocks of a product on an SM; see gemm_tiles.h.
constexpr int64_t kBlocksAtWork = 2;
constexpr int64_t kLineBytes = 128;

int TilesOf(int64_t extent, int tile) { return static_cast<int>(CeilDiv(extent, tile)); }

// The tile for few rows of x: of the tiles with the fewest tokens that hold all rows, the one with
// the most weight rows that still gives nine of ten SMs a tile.
int SkinnyTile(const GemmShape& shape, const GemmDevice& device) {
  int first = 0;
  while (kMmaTiles[first].tokens < shape.m) ++first;
  int chosen = -1;
  for (int tile = first; tile < kTiledMmaTile; ++tile) {
    if (kMmaTiles[tile].tokens != kMmaTiles[first].tokens) break;
    if (shape.gated && kMmaTiles[tile].rows < 32) continue;
    const int64_t tiles = CeilDiv(shape.n, kMmaTiles[tile].rows);
    if (chosen < 0 || tiles * 10 >= int64_t{device.multiprocessors} * 9) chosen = tile;
  }
  return chosen;
}

// The tile for more than kSkinnyTokens rows of x; see PlanGemm.
int ManyRowsTile(const GemmShape& shape, const GemmDevice& device) {
  constexpr int64_t kFinerRows = 256;
  const int64_t multiprocessors = std::max(device.multiprocessors, 1);
  const auto size = [](int index) { return kMmaTiles[index].rows + kMmaTiles[index].tokens; };
  int chosen = kTiledMmaTile;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int index = 0; index < kMmaTileCount; ++index) {
    const MmaTile& tile = kMmaTiles[index];
    if (tile.tokens < kSkinnyTokens) continue;
    const int64_t tiles = CeilDiv(shape.n, tile.rows) * CeilDiv(shape.m, tile.tokens);
    const int64_t cost = CeilDiv(tiles, multiprocessors) * size(index);
    const bool equal_loses = shape.m <= kFinerRows && size(index) > size(chosen);
    if (cost > least || (cost == least && equal_loses)) continue;
    chosen = index;
    least = cost;
  }
  return chosen;
}

// Returns the bytes to prefetch of the rows of a thread block's first tile; 0 if the ring holds the
// complete rows.
int PrefetchBytes(int tile, int grid, int64_t k) {
  const MmaTile& shape = kMmaTiles[tile];
  if (shape.tokens > kPrefetchTokens || k <= (shape.stages - 1) * shape.stage_k) return 0;
  const int64_t share = kPrefetchBytes / grid / kLineBytes * kLineBytes;
  return static_cast<int>(std::min({share, shape.rows * k * 2, int64_t{kMaxPrefetchBytes}}));
}

GemmPlan PlanMma(GemmMethod method, int tile, const GemmShape& shape, const GemmDevice& device) {
  GemmPlan plan{.method = method,
                .tile = tile,
                .row_tiles = TilesOf(shape.n, kMmaTiles[tile].rows),
                .token_tiles = TilesOf(shape.m, kMmaTiles[tile].tokens),
                .threads = kGemmThreads,
                .shared_bytes = static_cast<size_t>(kMmaTiles[tile].shared_bytes())};
  plan.grid = EvenGrid(int64_t{plan.row_tiles} * plan.token_tiles, plan.shared_bytes, device);
  plan.prefetch_bytes = PrefetchBytes(tile, plan.grid, shape.k);
  return plan;
}

GemmPlan PlanSimt(const GemmShape& shape) {
  const int tile = shape.m <= kSimtTiles[0].tokens ? 0 : 1;
  GemmPlan plan{.method = GemmMethod::kSimt,
                .tile = tile,
                .row_tiles = TilesOf(shape.n, kSimtTiles[tile].rows),
                .token_tiles = TilesOf(shape.m, kSimtTiles[tile].tokens),
                .threads = kGemmThreads,
                .shared_bytes = static_cast<size_t>(kSimtTiles[tile].shared_bytes())};
  plan.grid = plan.row_tiles * plan.token_tiles;
  return plan;
}

}  // namespace

int EvenGrid(int64_t tiles, size_t shared_bytes, const GemmDevice& device) {
  const int64_t multiprocessors = std::max(device.multiprocessors, 1);
  const auto fitting = static_cast<int64_t>(device.shared_bytes_per_multiprocessor /
                                            (shared_bytes + kReservedSharedBytes));
  const int64_t blocks = multiprocessors * std::clamp<int64_t>(fitting, 1, kBlocksAtWork);
  const int64_t rounds = CeilDiv(tiles, blocks);
  const int64_t even = CeilDiv(tiles, rounds);
  // Each SM gets a thread block before one gets a second.
  const int64_t seconds = even > multiprocessors ? CeilDiv(tiles - multiprocessors, even) : 0;
  const bool uneven = rounds + seconds > CeilDiv(tiles, multiprocessors);
  return static_cast<int>(uneven ? blocks : even);
}

bool UsesTensorCores(int64_t n, int64_t k, DType dtype) {
  return (dtype == DType::kBF16 || dtype == DType::kF16) && n % 8 == 0 && k % 8 == 0;
}

GemmPlan PlanGemm(const GemmShape& shape, const GemmDevice& device) {
  TLM_CHECK(shape.m > 0 && shape.n > 0 && shape.k > 0);
  TLM_CHECK(shape.m <= kMaxGemmExtent && shape.n <= kMaxGemmExtent && shape.k <= kMaxGemmExtent);
  const int64_t of_n = shape.of_n == 0 ? shape.n : shape.of_n;
  if (!UsesTensorCores(of_n, shape.k, shape.dtype)) return PlanSimt(shape);
  if (shape.m <= kSkinnyTokens) {
    return PlanMma(GemmMethod::kSkinny, SkinnyTile(shape, device), shape, device);
  }
  const int tile = ManyRowsTile(shape, device);
  return PlanMma(tile == kTiledMmaTile ? GemmMethod::kTiled : GemmMethod::kSkinny, tile, shape,
                 device);
}

}  // namespace tlm
