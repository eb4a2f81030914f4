// The promise that all of the engine's bits stand on: a position's attention is the same however
// its sequence came there. Chunks of every size, units of every size, blocks scattered over the
// cache; on a GPU with contexts of 2,000 positions.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/simt/device_under_test.h"
#include "tests/unit/model/ops/cuda/attention_world.h"

namespace tlm {
namespace {

// How far to go: the emulator takes seconds for what a GPU does at once.
struct Reach {
  int64_t tokens;
  std::vector<int64_t> chunks;
  std::vector<int64_t> unit_tiles;
  int64_t grid_blocks;
};

Reach ReachOfDevice() {
  constexpr int64_t kWhole = std::numeric_limits<int32_t>::max();
  if (!RunsOnGpu()) return {150, {1, 64, 100}, {1, kWhole}, 7};
  return {1990, {1, 17, 63, 64, 65, 100, 511, 512, 1990}, {1, 3, 16, kWhole}, 264};
}

// Of single tokens only those around the borders of tiles, and some more: a batch each.
bool IsTried(int64_t position, int64_t chunk) {
  return chunk > 1 || position % kBlockTokens < 2 || position % kBlockTokens == 63 ||
         position % 97 == 0;
}

class AttentionInvarianceTest : public ::testing::TestWithParam<Heads> {};

TEST_P(AttentionInvarianceTest, ChunksAndUnitsGiveTheSameBits) {
  const Heads& heads = GetParam();
  const Reach reach = ReachOfDevice();
  World world(heads, {Sequence(heads, reach.tokens, 31, ScatteredBlocks(reach.tokens, 37))});
  world.Run({{{0, 0, reach.tokens}}}, {.grid_blocks = reach.grid_blocks});
  const std::vector<uint32_t> whole = Bits(world.output(0));
  ASSERT_TRUE(std::ranges::none_of(world.output(0), [](float v) { return v != v; }));
  for (const int64_t chunk : reach.chunks) {
    std::vector<std::vector<Part>> batches;
    std::vector<bool> tried(reach.tokens);
    for (int64_t begin = 0; begin < reach.tokens; begin += chunk) {
      if (!IsTried(begin, chunk)) continue;
      const int64_t end = std::min(reach.tokens, begin + chunk);
      batches.push_back({{0, begin, end}});
      std::fill(tried.begin() + begin, tried.begin() + end, true);
    }
    for (const int64_t unit_tiles : reach.unit_tiles) {
      world.Run(batches, {.unit_tiles = unit_tiles,
                          .grid_blocks = reach.grid_blocks,
                          .padding = static_cast<int>(unit_tiles % 2)});
      const std::vector<uint32_t> found = Bits(world.output(0));
      for (size_t i = 0; i < found.size(); ++i) {
        if (!tried[i / static_cast<size_t>(heads.q_cols())]) continue;
        ASSERT_EQ(found[i], whole[i]) << heads.name() << ", chunks of " << chunk << ", units of "
                                      << unit_tiles << " tiles, element " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Heads, AttentionInvarianceTest,
    ::testing::Values(Heads{DType::kBF16, 4, 2, 64}, Heads{DType::kF16, 3, 1, 80},
                      Heads{DType::kF16, 4, 4, 96, 700}, Heads{DType::kBF16, 8, 2, 128},
                      Heads{DType::kF16, 4, 1, 128, 90}, Heads{DType::kBF16, 2, 1, 256},
                      Heads{DType::kBF16, 5, 1, 112}, Heads{DType::kF32, 4, 2, 64},
                      Heads{DType::kF16, 2, 2, 7, 64}, Heads{DType::kF32, 3, 1, 20},
                      Heads{DType::kBF16, 18, 1, 64, 40}, Heads{DType::kF32, 2, 2, 5}),
    [](const auto& info) {
      const Heads& heads = info.param;
      return std::string(DTypeName(heads.dtype)) + "_" + std::to_string(heads.query_heads) + "_" +
             std::to_string(heads.kv_heads) + "_" + std::to_string(heads.head_dim) + "_" +
             std::to_string(heads.window);
    });

}  // namespace
}  // namespace tlm
